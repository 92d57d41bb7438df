"""Which sequence of a decoder's stores belongs to each sequence of the encoder's.

Both are those of the same document, so each store needs as many documents as the other side's, of
one sequence or none each. Where every document has one, nothing is read for it; else the indices
are. Conditions on the decoder's sequences become those on the encoder's, with 1 byte for each.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

import numpy as np

from seqpack_cli.corpus.sources import STANDARD_INPUT
from seqpack_cli.errors import OptionError
from seqpack_cli.tokens.store import StoreFolder, TokenStore

NO_SEQUENCE = -1
NUM_SAMPLES = 256
CHANGED_HINT = (
    "make both stores again from the same file; two different files need different paths, such as "
    "de/train.txt and en/train.txt"
)
PartTest = Callable[[int], np.ndarray]  # number of a part -> bool, one per sequence


def align(encoder: TokenStore, decoder: TokenStore) -> Alignment:
    """Compare the documents of both sides, store by store, and align their sequences.

    Raises:
        OptionError: the stores are not aligned, or a document has several sequences; the first
            difference is named.
    """
    if len(encoder.folders) != len(decoder.folders):
        raise OptionError(
            f"--decoder: {len(decoder.folders):,} stores, expected {len(encoder.folders):,}, one "
            "for each STORE",
            hint="pass --decoder once for each STORE, in the same order",
        )
    for ours, theirs in zip(encoder.folders, decoder.folders, strict=True):
        _check_documents(ours, theirs)
    for store in (encoder, decoder):
        for folder in store.folders:
            if folder.num_sequences > folder.num_documents - folder.num_silent:
                for number in folder.parts:
                    _find_present(store, number)
    return Alignment(encoder, decoder)


class Alignment:
    """The sequences of two sides that are those of the same documents.

    Args:
        encoder: the store, or several, whose sequences are looked up.
        decoder: as many stores, in the same order, of the same documents; see `align`.
    """

    def __init__(self, encoder: TokenStore, decoder: TokenStore) -> None:
        self.encoder, self.decoder = encoder, decoder

    @cached_property
    def decoder_indices(self) -> np.ndarray:
        """The decoder's sequence of the same document, for each of the encoder's, int64[N].

        -1 where the decoder's document is empty.
        """
        sides = self.encoder, self.decoder
        if not any(folder.num_silent for side in sides for folder in side.folders):
            return np.arange(len(self.encoder))
        is_wanted, is_known = (
            np.concatenate([_find_present(side, number) for number in range(side.num_parts)])
            for side in sides
        )
        indices = np.cumsum(is_known)
        indices -= 1
        indices[~is_known] = NO_SEQUENCE
        found: np.ndarray = indices[is_wanted]
        return found

    @cached_property
    def decoder_lengths(self) -> np.ndarray:
        """The length of the decoder's sequence of the same document, int32[N]; 0 where empty."""
        lengths: np.ndarray = self.decoder.lengths[self.decoder_indices]
        lengths[self.decoder_indices == NO_SEQUENCE] = 0
        return lengths

    @property
    def lone_lengths(self) -> np.ndarray:
        """The lengths of the decoder's sequences whose encoder document is empty, int32."""
        is_known = self.decoder_indices != NO_SEQUENCE
        return np.delete(self.decoder.lengths, self.decoder_indices[is_known])

    def spread(self, test: PartTest) -> PartTest:
        """Return a test of the decoder's sequences as one of the encoder's.

        It is False where the decoder's document is empty. The decoder's parts are all evaluated
        when the first result is needed, and are kept with 1 byte per sequence.
        """

        @functools.cache
        def find_all() -> np.ndarray:
            return np.concatenate([test(number) for number in range(self.decoder.num_parts)])

        def spread_part(number: int) -> np.ndarray:
            first, last = self.encoder.part_offsets[number : number + 2].tolist()
            indices = self.decoder_indices[first:last]
            found: np.ndarray = find_all()[indices] & (indices != NO_SEQUENCE)
            return found

        return spread_part


def describe_missing_ends(store: TokenStore) -> str | None:
    """Return a note if the sequences of a decoder's store begin, or end, with different tokens.

    Some all over the store are looked at. A decoder is started with a token that is always the
    same, and stops at one; they are in the store, or the loader adds them.
    """
    places = np.unique(np.linspace(0, len(store) - 1, NUM_SAMPLES).astype(np.int64)).tolist()
    missing = [
        option
        for option, cell in (("bos", 0), ("eos", -1))
        if len({int(store[place][cell]) for place in places}) > 1
    ]
    if not missing:
        return None
    options = " and ".join(f"--{option}" for option in missing)
    arguments = " and ".join(f"{option}_id=" for option in missing)
    return (
        "the decoder's sequences begin or end with different tokens, expected one to start from "
        f"and one to stop at: tokenize that side with {options}, or pass {arguments} to "
        "ShardDataset"
    )


def _find_present(store: TokenStore, number: int) -> np.ndarray:
    """Return which documents of a part have a sequence, bool; raise OptionError for several."""
    counts = store.count_sequences(number)
    if counts.max(initial=0) > 1:
        first = int(counts[: int((counts > 1).argmax())].sum())
        origin = store.locate(int(store.part_offsets[number]) + first)
        hint = "import ids as JSON lines, a record for each document"
        if store.folder_of(number).manifest["made_by"] == "tokenize":
            hint = "tokenize without --max-length, or with --overflow truncate"
        raise OptionError(
            f"{origin.store}: document {origin.source}:{origin.record} has {origin.num_pieces:,} "
            "sequences, expected 1 for each document of a pair",
            hint=hint,
        )
    return counts > 0


def _check_documents(encoder: StoreFolder, decoder: StoreFolder) -> None:
    """Raise OptionError unless document i of one store can be document i of the other.

    The manifests tell: a document keeps its number if it has no sequence.
    """
    ours, theirs = _list_sources(encoder), _list_sources(decoder)
    if _list_fields(encoder) != _list_fields(decoder):  # else a.en and a.de may be pairs both ways
        _check_order(encoder, decoder)
    for expected, found in zip(ours, theirs, strict=True) if len(ours) == len(theirs) else ():
        ranges = expected["ranges"]
        is_changed = found["bytes"] != expected["bytes"] or any(
            ranges.get(place, digest) != digest for place, digest in found["ranges"].items()
        )
        if is_changed and found["path"] == expected["path"] != STANDARD_INPUT:
            raise OptionError(
                f"{decoder.path}: source {found['path']} has other bytes than in {encoder.path}",
                hint=CHANGED_HINT,
            )
        if found["num_documents"] != expected["num_documents"]:
            raise OptionError(
                f"{decoder.path}: {_count(found)} in source {found['path']}, expected "
                f"{expected['num_documents']:,} as in source {expected['path']} of {encoder.path}",
                hint="give both files a line for each pair: empty lines count, and the pair of one "
                "is left out",
            )
    if decoder.num_documents != encoder.num_documents:
        raise OptionError(
            f"{decoder.path}: {_count(decoder.manifest['ledger'])}, expected "
            f"{encoder.num_documents:,} as in {encoder.path}",
            hint="tokenize two fields of the same records, or two files with a line for each pair",
        )


def _check_order(encoder: StoreFolder, decoder: StoreFolder) -> None:
    """Raise OptionError if two fields of the same files were read in another order.

    A file is known by its path, else by its bytes, if both stores cut it into the same ranges.
    """
    theirs = _list_sources(decoder)
    of_path = {source["path"]: place for place, source in enumerate(theirs)}
    of_bytes = {(*it["ranges"].items(),): place for place, it in enumerate(theirs) if it["bytes"]}
    for place, source in enumerate(_list_sources(encoder)):
        path, ranges, wanted = source["path"], source["ranges"], f"in {encoder.path}"
        found = of_path.get(path, place)
        if path not in of_path and ranges not in [it["ranges"] for it in theirs[place : place + 1]]:
            found = of_bytes.get((*ranges.items(),), place)
            wanted = f"{path} {wanted}, which has the same bytes"
        if found != place:
            raise OptionError(
                f"{decoder.path}: source {theirs[found]['path']} is number {found + 1:,}, "
                f"expected {place + 1:,} as {wanted}",
                hint="pass both tokenize commands the same files in the same order",
            )


def _list_sources(store: StoreFolder) -> list[dict[str, Any]]:
    """Return the sources of a manifest, each with the BLAKE3 of the ranges that were read."""
    sources = [{**source, "ranges": {}} for source in store.manifest["sources"]]
    for part in store.manifest["parts"]:
        for entry in part["ranges"]:
            sources[entry["source"]]["ranges"][entry["start"], entry["end"]] = entry["blake3"]
    return sources


def _list_fields(store: StoreFolder) -> dict[str, Any]:
    """Return the options that name the fields of a record that were read."""
    options = store.manifest["options"]
    return {name: value for name, value in options.items() if name.endswith("_field")}


def _count(counts: Mapping[str, Any]) -> str:
    number = counts["num_documents"]
    return f"{number:,} document{'s' * (number != 1)}"

"""Compare two token stores whose documents shall be the same ones, by what their manifests say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from seqpack_cli.corpus.sources import STANDARD_INPUT
from seqpack_cli.errors import OptionError
from seqpack_cli.tokens.store import StoreFolder, TokenStore

LINES_HINT = (
    "give both files a line for each pair: empty lines count, and the pair of one is left out"
)
PAIRS_HINT = "tokenize two fields of the same records, or two files with a line for each pair"
CHANGED_HINT = (
    "make both stores again from the same file; two different files need different paths, such as "
    "de/train.txt and en/train.txt"
)
ORDER_HINT = "pass both tokenize commands the same files in the same order"
SPLIT_HINT = "tokenize without --max-length, or with --overflow truncate"
JOINED_HINT = "import ids as JSON lines, a record for each document"


def check_numbers(num_encoders: int, num_decoders: int) -> None:
    """Raise OptionError unless there are as many stores on both sides."""
    if num_encoders != num_decoders:
        raise OptionError(
            f"--decoder: {num_decoders:,} stores, expected {num_encoders:,}, one for each STORE",
            hint="pass --decoder once for each STORE, in the same order",
        )


def check_pair(encoder: StoreFolder, decoder: StoreFolder) -> None:
    """Raise OptionError unless document i of one store can be document i of the other.

    Each keeps its number if it has no sequence, so that those behind it stay aligned.
    """
    _check_order(encoder, decoder)
    if len(encoder.manifest["sources"]) == len(decoder.manifest["sources"]):
        _check_sources(encoder, decoder)
        _check_bytes(encoder, decoder)
    if decoder.num_documents != encoder.num_documents:
        raise OptionError(
            f"{decoder.path}: {_count(decoder.num_documents)}, expected "
            f"{encoder.num_documents:,} as in {encoder.path}",
            hint=PAIRS_HINT,
        )


def has_one_each(store: StoreFolder) -> bool:
    """Return whether each document of a store has one sequence."""
    return store.num_sequences == store.num_documents and not store.num_silent


def find_present(store: TokenStore, number: int) -> np.ndarray:
    """Return which documents of a part have a sequence, bool[documents].

    Raises:
        OptionError: one has several.
    """
    counts = store.count_sequences(number)
    is_split = counts > 1
    if is_split.any():
        first = int(counts[: int(is_split.argmax())].sum())
        origin = store.locate(int(store.part_offsets[number]) + first)
        is_cut = store.folder_of(number).manifest["made_by"] == "tokenize"
        raise OptionError(
            f"{origin.store}: document {origin.source}:{origin.record} has {origin.num_pieces:,} "
            "sequences, expected 1 for each document of a pair",
            hint=SPLIT_HINT if is_cut else JOINED_HINT,
        )
    is_present: np.ndarray = counts == 1
    return is_present


def _count(num_documents: int) -> str:
    return f"{num_documents:,} document{'s' * (num_documents != 1)}"


def _is_same(source: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Return whether two sources are one file; what came from standard input is not known."""
    return bool(source["path"] == other["path"] != STANDARD_INPUT)


def _check_sources(encoder: StoreFolder, decoder: StoreFolder) -> None:
    """Raise OptionError if a source has another number of documents, or another size than before.

    Both stores have as many sources.
    """
    both = zip(encoder.manifest["sources"], decoder.manifest["sources"], strict=True)
    for expected, found in both:
        if _is_same(expected, found) and found["bytes"] != expected["bytes"]:
            raise OptionError(
                f"{decoder.path}: source {found['path']} has {found['bytes']:,} bytes, "
                f"expected {expected['bytes']:,} as in {encoder.path}",
                hint=CHANGED_HINT,
            )
        if found["num_documents"] != expected["num_documents"]:
            raise OptionError(
                f"{decoder.path}: {_count(found['num_documents'])} in source {found['path']}, "
                f"expected {expected['num_documents']:,} as in source {expected['path']} of "
                f"{encoder.path}",
                hint=LINES_HINT,
            )


def _check_bytes(encoder: StoreFolder, decoder: StoreFolder) -> None:
    """Raise OptionError if a range of a file that both stores read had other bytes."""
    sources = encoder.manifest["sources"], decoder.manifest["sources"]
    digests = _list_digests(encoder)
    for (index, start, end), digest in _list_digests(decoder).items():
        expected, found = (each[index] for each in sources)
        known = digests.get((index, start, end), digest)
        if known != digest and _is_same(expected, found):
            raise OptionError(
                f"{decoder.path}: source {found['path']} differs in its bytes {start:,} to "
                f"{end:,}, expected the same as in {encoder.path}",
                hint=CHANGED_HINT,
            )


def _list_digests(store: StoreFolder) -> dict[tuple[int, int, int], str]:
    """Return the BLAKE3 of each range of the input, by source, start and end."""
    return {
        (entry["source"], entry["start"], entry["end"]): entry["blake3"]
        for part in store.manifest["parts"]
        for entry in part["ranges"]
    }


def _check_order(encoder: StoreFolder, decoder: StoreFolder) -> None:
    """Raise OptionError if two fields of the same files were read in another order.

    A file is known by its path, or by its bytes where both stores cut it into the same ranges. The
    same field of the same files is read in another order to translate both ways.
    """
    if _list_fields(encoder) == _list_fields(decoder):
        return
    places = {each["path"]: place for place, each in enumerate(decoder.manifest["sources"])}
    for place, source in enumerate(encoder.manifest["sources"]):
        path, found = source["path"], places.get(source["path"], place)
        if found != place:
            raise OptionError(
                f"{decoder.path}: source {path} is number {found + 1:,}, expected "
                f"{place + 1:,} as in {encoder.path}",
                hint=ORDER_HINT,
            )
    contents = _list_contents(decoder)
    places = {content: place for place, content in enumerate(contents) if content}
    for place, content in enumerate(_list_contents(encoder)):
        found = places.get(content, place)
        if found != place and contents[place : place + 1] != [content]:
            expected = encoder.manifest["sources"][place]["path"]
            raise OptionError(
                f"{decoder.path}: source {decoder.manifest['sources'][found]['path']} is number "
                f"{found + 1:,}, expected {place + 1:,} as {expected} in {encoder.path}, which has "
                "the same bytes",
                hint=ORDER_HINT,
            )


def _list_contents(store: StoreFolder) -> list[tuple[Any, ...]]:
    """Return what tells the bytes of each source: its ranges and their BLAKE3; () without any."""
    contents: list[tuple[Any, ...]] = [() for _ in store.manifest["sources"]]
    for (index, start, end), digest in _list_digests(store).items():
        contents[index] += ((start, end, digest),) if end > start else ()
    return contents


def _list_fields(store: StoreFolder) -> dict[str, Any]:
    """Return the options that name the fields of a record that were read."""
    options = store.manifest["options"]
    return {name: value for name, value in options.items() if name.endswith("_field")}

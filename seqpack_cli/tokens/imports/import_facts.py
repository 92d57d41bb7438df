"""What the parts of an import say of their ids, beside the ledger, and the notes about it.

Nothing is added to imported ids or guessed from them, so that what looks wrong is told.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from seqpack_cli.tokens.imports.id_block import IdBlock

COUNTS = ("num_with_bos", "num_with_eos", "num_ending_twice")  # of documents
IDS = ("ending_twice_id", "largest_id")  # 0 if there is none
RECEIPT_FIELDS = dict.fromkeys((*COUNTS, *IDS), int)
MIN_DOCUMENTS = 20  # of which more than half end as padded ones do

Receipts = Sequence[Mapping[str, Any]]


class PartFacts:
    """What is counted while a part is made.

    Args:
        affix_ids: the ids that may begin and end a document, by their roles.
    """

    def __init__(self, affix_ids: Mapping[str, int | None]) -> None:
        self._affix_ids = affix_ids
        self._found = dict.fromkeys(RECEIPT_FIELDS, 0)

    def add(self, block: IdBlock, largest_id: int) -> None:
        """Take some documents, and the largest of their ids."""
        found, ids, offsets = self._found, block.ids, block.offsets
        lengths = offsets[1:] - offsets[:-1]
        ends = offsets[1:][lengths > 0]
        places = {"bos": offsets[:-1][lengths > 0], "eos": ends - 1}
        for role, id_ in self._affix_ids.items():
            if id_ is not None:
                found[f"num_with_{role}"] += int((ids[places[role]] == id_).sum())
        ends = ends[lengths[lengths > 0] > 1]
        twice = ends[ids[ends - 1] == ids[ends - 2]]
        if len(twice) and not found["num_ending_twice"]:
            found["ending_twice_id"] = int(ids[twice[0] - 1])
        found["num_ending_twice"] += len(twice)
        found["largest_id"] = max(found["largest_id"], largest_id)

    def describe(self) -> dict[str, int]:
        """Return the fields of the receipt."""
        return dict(self._found)


def iter_notes(
    receipts: Receipts,
    ledger: Mapping[str, int],
    affix_ids: Mapping[str, int | None],
    vocab_size: int | None,
    *,
    has_mask: bool,
) -> Iterator[str]:
    """Yield notes about the ids of a store.

    Args:
        vocab_size: as the user passed it, None if there is a tokenizer.
        has_mask: whether an attention mask said what is padding.
    """
    num_documents = ledger["num_documents"] - ledger["num_empty_documents"]
    num_documents -= ledger["num_rejected"]
    if affixes := _describe_affixes(receipts, num_documents, affix_ids):
        yield affixes
    num_twice = _sum(receipts, "num_ending_twice")
    if not has_mask and num_documents >= MIN_DOCUMENTS and 2 * num_twice > num_documents:
        id_ = next(each[IDS[0]] for each in receipts if each["num_ending_twice"])
        yield (
            f"{num_twice:,} of {num_documents:,} documents end with the same id twice, such as "
            f"{id_}; if that is padding, pass --attention-mask-field, or remove it before import"
        )
    largest = max(each["largest_id"] for each in receipts)
    if vocab_size is not None and 2 * (largest + 1) < vocab_size:
        yield f"the largest id is {largest:,}, less than half of --vocab-size {vocab_size:,}"


def _describe_affixes(
    receipts: Receipts, num_documents: int, affix_ids: Mapping[str, int | None]
) -> str:
    """Return how many documents begin with BOS and end with EOS, "" if neither is known."""
    found: list[str] = []
    for verb, (role, id_) in zip(("begin", "end"), affix_ids.items(), strict=True):
        if id_ is not None:
            of_all = "" if found else f" of {num_documents:,} documents"
            count = _sum(receipts, f"num_with_{role}")
            found.append(f"{count:,}{of_all} {verb} with id {id_} ({role})")
    return ", ".join(found)


def _sum(receipts: Receipts, name: str) -> int:
    return sum(receipt[name] for receipt in receipts)

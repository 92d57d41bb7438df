"""Labels of a batch: its targets, at their own places or one token earlier, or one of its columns.

The column `targets` decides which tokens count in the loss. A batch without it counts every token.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from seqpack_cli.errors import join_items, quote
from seqpack_cli.shards.layouts import Batch
from seqpack_cli.tokens.columns import RESERVED, TARGETS
from seqpack_cli.tokens.text_values import TextValues

IGNORED = -100  # cross_entropy's ignore_index
NEXT = "next"  # at each token the one after it
SAME = "same"  # at each token the token itself
OF_TARGETS = (NEXT, SAME)  # these follow from the column `targets`


def make_next_labels(batch: Batch) -> np.ndarray:
    """Return the next-token labels of a batch that was checked.

    The label at each token is the next token, so that a model's outputs and labels are aligned.
    It is IGNORED where the next token is not a target, at the last token of a sequence, or of a
    piece of one that does not go on in the next batch, and in padding.

    Returns:
        int64, in the shape of the batch's ids: [S], or [B, width] for padded.

    Raises:
        ValueError: the column `targets` has not one value per token.
    """
    labels = batch.follow(mask_targets(batch), IGNORED)
    cells, next_ids = batch.find_cuts()
    if len(cells):
        labels.reshape(-1)[cells] = next_ids
    return labels


def make_same_labels(batch: Batch) -> np.ndarray:
    """Return the labels of a batch that was checked, for models that shift labels themselves.

    The label at each token is the token itself. It is IGNORED where the token is not a target, at
    the first token of a sequence, or of a piece of one, which would be learned from what stands
    before it, and in padding. Shifted by one token, these are the next-token labels.

    Returns:
        int64, in the shape of the batch's ids: [S], or [B, width] for padded.

    Raises:
        ValueError: the column `targets` has not one value per token.
    """
    labels = make_next_labels(batch)
    cells = batch.follow(np.arange(labels.size).reshape(batch.shape), IGNORED)
    made = np.full(labels.size, IGNORED, np.int64)
    made[cells[cells >= 0]] = labels[cells >= 0]
    return made.reshape(batch.shape)


def make_labels(batch: Batch, labels: str) -> np.ndarray:
    """Return the labels of a batch that was checked: tokens, or one of its columns.

    Args:
        labels: NEXT, SAME or the name of a column other than `targets` and `overlap`.

    Returns:
        Tokens and columns per token: int64 in the shape of the batch's ids. Columns per sequence:
        int64[B], or float32[B] of floating-point numbers, rounded: one that is too small becomes 0.
        Padding, filler rows and what has no class have IGNORED, but 0 in a column of floating-point
        numbers.

    Raises:
        ValueError: the batch has no such column, it is text, `targets` or `overlap`, or a number is
            too large for float32, or the column `targets` has not one value per token.
    """
    if labels == NEXT:
        return make_next_labels(batch)
    if labels == SAME:
        return make_same_labels(batch)
    values = batch.columns.get(labels)
    if labels in RESERVED or values is None or isinstance(values, TextValues):
        are_texts = {name: isinstance(each, TextValues) for name, each in batch.columns.items()}
        raise _wrong_labels(labels, are_texts)
    if values.dtype.kind == "f":
        return _to_float32(values, labels)
    made = values.astype(np.int64)
    if made.shape == batch.lengths.shape:
        made[batch.lengths == 0] = IGNORED  # a filler row of a column of integers has 0
    return made


def mask_targets(batch: Batch) -> np.ndarray:
    """Return the ids in their shape, IGNORED where one is not a target; padding keeps its id.

    Raises:
        ValueError: the column `targets` has not one value per token.
    """
    ids, targets = batch.data.reshape(batch.shape), batch.columns.get(TARGETS)
    if targets is None:
        return ids
    if not isinstance(targets, np.ndarray) or targets.shape != batch.shape:
        raise ValueError(f"column {quote(TARGETS)}: expected one 0 or 1 for each token")
    return np.where(targets == 1, ids, np.int64(IGNORED))


def check_labels(labels: str | None, is_text: Mapping[str, bool]) -> None:
    """Raise ValueError unless labels is None, NEXT, SAME, or a column that can be labels.

    Args:
        is_text: the columns that there are, and whether each is text.
    """
    if labels is None or labels in OF_TARGETS:
        return
    if labels in RESERVED or is_text.get(labels, True):
        raise _wrong_labels(labels, is_text)


def _to_float32(values: np.ndarray, name: str) -> np.ndarray:
    with np.errstate(over="ignore", under="ignore"):
        rounded = values.astype(np.float32)
    is_finite = np.isfinite(rounded)
    if not is_finite.all():
        raise ValueError(
            f"column {quote(name)} holds {float(values[is_finite.argmin()])}, expected labels in "
            f"the range of float32; without labels, batch.columns[{name!r}] holds it"
        )
    return rounded


def _wrong_labels(labels: str, is_text: Mapping[str, bool]) -> ValueError:
    if labels in RESERVED:
        return ValueError(
            f"labels is {quote(labels)}, expected {NEXT!r} or {SAME!r}: the ids of the tokens that "
            "are targets"
        )
    if labels in is_text:
        return ValueError(
            f"labels is {quote(labels)}, a column of text, expected one of numbers, classes or "
            f"tags, such as tokenize --keep {labels}:class makes"
        )
    columns = join_items(quote(name) for name in is_text if name not in RESERVED) or "no columns"
    return ValueError(
        f"labels is {quote(labels)}, expected None, {NEXT!r}, {SAME!r} or a column "
        f"(found: {columns})"
    )

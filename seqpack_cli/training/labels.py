"""Labels of a batch: the next tokens, or one of its columns."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from seqpack_cli.errors import join_items, quote
from seqpack_cli.shards.layouts import Batch
from seqpack_cli.tokens.columns.text_values import TextValues

IGNORED = -100  # cross_entropy's ignore_index
NEXT = "next"  # the labels that are the next tokens


def make_next_labels(batch: Batch) -> np.ndarray:
    """Return the next-token labels of a batch that was checked.

    The label at each token is the next token, so that a model's outputs and labels are aligned.
    The last token of a sequence, or of a piece of one, and padding have IGNORED.

    Returns:
        int64, in the shape of the batch's ids: [S], or [B, width] for padded.
    """
    return batch.follow(batch.data.reshape(batch.shape), IGNORED)


def make_labels(batch: Batch, labels: str) -> np.ndarray:
    """Return the labels of a batch that was checked: next tokens, or one of its columns.

    Args:
        labels: NEXT or the name of a column.

    Returns:
        Next tokens and columns per token: int64 in the shape of the batch's ids. Columns per
        sequence: int64[B], or float32[B] of floating-point numbers, rounded: one that is too small
        becomes 0. Padding, filler rows and what has no class have IGNORED, but 0 in a column of
        floating-point numbers.

    Raises:
        ValueError: the batch has no such column, it is text, or a number is too large for float32.
    """
    if labels == NEXT:
        return make_next_labels(batch)
    values = batch.columns.get(labels)
    if values is None or isinstance(values, TextValues):
        are_texts = {name: isinstance(each, TextValues) for name, each in batch.columns.items()}
        raise _wrong_labels(labels, are_texts)
    if values.dtype.kind == "f":
        return _to_float32(values, labels)
    made = values.astype(np.int64)
    if made.shape == batch.lengths.shape:
        made[batch.lengths == 0] = IGNORED  # a filler row of a column of integers has 0
    return made


def check_labels(labels: str | None, is_text: Mapping[str, bool]) -> None:
    """Raise ValueError unless labels is None, NEXT, or a column that can be labels.

    Args:
        is_text: the columns that there are, and whether each is text.
    """
    if labels is not None and labels != NEXT and is_text.get(labels, True):
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
    if labels in is_text:
        return ValueError(
            f"labels is {quote(labels)}, a column of text, expected one of numbers, classes or tags"
        )
    columns = join_items(map(quote, is_text)) or "no columns"
    return ValueError(
        f"labels is {quote(labels)}, expected None, {NEXT!r} or a column (found: {columns})"
    )

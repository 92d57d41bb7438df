"""Many short texts in two arrays: their UTF-8 bytes, and where each begins."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import overload

import numpy as np

from seqpack_cli.errors import quote
from seqpack_cli.ranges import copy_ranges, find_differing, to_offsets, view_bits

MAX_SHOWN_TEXTS = 3  # in a repr
MAX_SHOWN_BYTES = 256  # of each; more than are quoted


class TextValues(Sequence[str]):
    """The texts of a column, one per sequence or row; `texts[i]` is decoded when it is read.

    `texts.tolist()` is a list of str.

    Args:
        data: uint8, the UTF-8 bytes of all texts and maybe others.
        offsets: int64[N + 1], where in data each text begins, and where the last one ends.
    """

    def __init__(self, data: np.ndarray, offsets: np.ndarray) -> None:
        self.data = data
        self.offsets = offsets

    @classmethod
    def of(cls, texts: Sequence[str]) -> TextValues:
        """Encode texts."""
        joined = "".join(texts)
        if joined.isascii():  # a byte per character
            lengths = np.fromiter(map(len, texts), np.int64, len(texts))
        else:
            lengths = np.fromiter(map(len, map(str.encode, texts)), np.int64, len(texts))
        return cls(np.frombuffer(joined.encode(), np.uint8), to_offsets(lengths))

    @property
    def lengths(self) -> np.ndarray:
        """The bytes of each text, int64[N]."""
        return np.diff(self.offsets)

    @property
    def nbytes(self) -> int:
        """The bytes of all texts."""
        return int(self.offsets[-1]) - int(self.offsets[0])

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __repr__(self) -> str:
        few = pairwise(self.offsets[: MAX_SHOWN_TEXTS + 1].tolist())
        raw = [self.data[start:end][:MAX_SHOWN_BYTES].tobytes() for start, end in few]
        shown = [quote(each.decode(errors="replace")) for each in raw]
        shown += ["…"] * (len(self) > MAX_SHOWN_TEXTS)
        return f"TextValues([{', '.join(shown)}], num_texts={len(self)})"

    @overload
    def __getitem__(self, index: int) -> str: ...

    @overload
    def __getitem__(self, index: slice) -> TextValues: ...

    def __getitem__(self, index: int | slice) -> str | TextValues:
        if isinstance(index, slice):
            start, stop, step = index.indices(len(self))
            if step != 1:
                return self.take(np.arange(start, stop, step))
            return TextValues(self.data, self.offsets[start : max(start, stop) + 1])
        place = range(len(self))[index]
        start, end = self.offsets[place : place + 2].tolist()
        return self.data[start:end].tobytes().decode()

    def __iter__(self) -> Iterator[str]:
        own = self.trim()
        raw, ends = own.data.tobytes(), own.offsets.tolist()
        if raw.isascii():  # then bytes are characters, and one call decodes all texts
            text = raw.decode()
            return (text[start:end] for start, end in pairwise(ends))
        return (raw[start:end].decode() for start, end in pairwise(ends))

    def tolist(self) -> list[str]:
        """Decode all texts."""
        return list(self)

    def trim(self) -> TextValues:
        """Return the same texts, whose bytes are all of data, as a view."""
        first, last = int(self.offsets[0]), int(self.offsets[-1])
        return TextValues(self.data[first:last], self.offsets - first)

    def take(self, indices: np.ndarray) -> TextValues:
        """Return the texts at some places, as a copy; an empty one for -1."""
        is_filler = indices < 0
        places = np.where(is_filler, 0, indices)
        lengths = np.where(is_filler, 0, self.lengths[places])
        offsets = to_offsets(lengths)
        data = np.empty(int(offsets[-1]), np.uint8)
        copy_ranges(self.data, self.offsets[places], data, offsets[:-1], lengths)
        return TextValues(data, offsets)

    def find_wrong(self) -> np.ndarray:
        """Find texts that are not UTF-8, bool[N]; the offsets must be right."""
        starts = self.offsets[:-1][self.lengths > 0]
        if is_utf8(self.trim().data) and not ((self.data[starts] & 0xC0) == 0x80).any():
            return np.zeros(len(self), bool)
        ends = pairwise(self.offsets.tolist())
        return np.array([not is_utf8(self.data[start:end]) for start, end in ends], bool)


def is_utf8(data: np.ndarray) -> bool:
    """Return whether bytes are UTF-8."""
    try:
        data.tobytes().decode()
    except UnicodeDecodeError:
        return False
    return True


def check_offsets(offsets: np.ndarray, *, num_texts: int, num_bytes: int, name: str) -> None:
    """Raise ValueError unless offsets rise from 0 to num_bytes."""
    if len(offsets) != num_texts + 1:
        raise ValueError(f"{name} has {len(offsets)} entries, expected {num_texts + 1}")
    if offsets[0] != 0 or offsets[-1] != num_bytes or (offsets[1:] < offsets[:-1]).any():
        raise ValueError(f"{name} does not rise from 0 to {num_bytes}")


def join_values(
    pieces: Sequence[np.ndarray | TextValues],
) -> np.ndarray | TextValues:
    """Concatenate pieces of one column."""
    texts = [piece.trim() for piece in pieces if isinstance(piece, TextValues)]
    if not texts:
        return np.concatenate(pieces)
    lengths = np.concatenate([text.lengths for text in texts])
    return TextValues(np.concatenate([text.data for text in texts]), to_offsets(lengths))


def find_differing_values(
    first: np.ndarray | TextValues, second: np.ndarray | TextValues
) -> np.ndarray:
    """Return at which places two equally long columns differ, as rising numbers.

    Floating-point numbers are compared by their bits: 0.0 and -0.0 are different.
    """
    if isinstance(first, TextValues) and isinstance(second, TextValues):
        data, others = first.trim().data, second.trim().data
        return find_differing(data, others, first.lengths, second.lengths)
    return np.flatnonzero(view_bits(np.asarray(first)) != view_bits(np.asarray(second)))

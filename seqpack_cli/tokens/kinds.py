"""The kinds of columns with one value per sequence: how each reads, collects and tests its values.

A kind is a class. A part makes one object of it for each column, which reads the values of records
and collects those of documents that have sequences. Classes are stored as numbers: a part numbers
its own in sorted order, numbers as numbers, strings by code point; the classes of a whole store are
those of all parts, sorted in the same way.
"""

from __future__ import annotations

import contextlib
import math
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from seqpack_cli.corpus.fields import KEEP, BadRecordError, Field
from seqpack_cli.errors import DataError, join_items, quote
from seqpack_cli.files.json_files import encode_json
from seqpack_cli.files.tensor_file import Spool, Tensor
from seqpack_cli.tokens.conditions import (
    Label,
    Test,
    make_class_test,
    make_float_test,
    make_integer_test,
    make_text_test,
)
from seqpack_cli.tokens.text_values import TextValues

Values = np.ndarray | TextValues  # of one column: an entry per sequence or row, or per token

SMALLEST, LARGEST = -(2**63), 2**63 - 1
EXACT = 2**53  # every integer up to here has a floating-point value
MAX_CLASSES = 1 << 20
NO_CLASS = -100  # cross_entropy's ignore_index
LABEL_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "number": (int, float),
    "boolean": (bool,),
}


@dataclass(frozen=True)
class PlannedColumn:
    """A column of a store that is to be made, in most cases from a field that `--keep` names."""

    name: str
    kind: str = ""  # until it is found, if `--keep` does not name it
    value_type: str | None = None  # of class names: "string", "number" or "boolean"
    class_names: tuple[Label, ...] | None = None  # fixed by the user, in this order
    text_field: str = "text"  # that has the words or characters of tags
    is_kept: bool = True  # its values are those of a field of each record


OpenSpool = Callable[[], Spool]  # where large values of a part may wait until its file is written


class Kind:
    """One kind of column; an object of it reads and collects one column of a part.

    It is a `Reader` of one list.
    """

    num_lists = 1

    dtype: str  # of the array in files
    fill = 0  # in filler rows and padding
    is_per_token = False
    has_classes = False
    is_text = False
    is_ordered = False  # whether < and > compare its values
    largest: int | None = None  # its largest value, None for that of its dtype
    expected = "a finite number"  # a value, for messages; of classes they name the classes
    # (operator, value, class names) -> Test; None if no condition may ask for its values
    make_test: Callable[[str, str, Sequence[Label]], Test] | None = None
    class_names: list[Label] | None = None  # of the part when it is finished
    counts: Counter[str]  # the ledger of the part

    def __init__(self, field: PlannedColumn, open_spool: OpenSpool | None = None) -> None:
        del open_spool
        self.field, self.name = field, field.name
        self._pieces: list[np.ndarray] = []

    @property
    def fields(self) -> tuple[Field, ...]:
        """The fields that it reads."""
        return (Field(self.name, KEEP, parse=self.parse),)

    def read_all(self, columns: Sequence[list[Any]]) -> list[list[Any]]:
        """Check many values at once; raise TypeError or ValueError if each must be read alone."""
        raise NotImplementedError

    def read(self, values: Sequence[Any]) -> list[Any]:
        """Check one value; raises BadRecordError."""
        raise NotImplementedError

    def parse(self, spelled: str) -> Any:
        """Return the value that a field of CSV spells, else the text."""
        return spelled

    def add(self, values: Sequence[Any], num_sequences: np.ndarray) -> None:
        """Add the values of some documents.

        Args:
            values: as they were read, of documents that have sequences.
            num_sequences: of each of them, all at least 1.
        """
        self.add_entries(np.repeat(self.number(values), num_sequences))

    def number(self, values: Sequence[Any]) -> np.ndarray:
        """Return values as numbers: classes as they come."""
        return np.array(values, self.dtype)

    def add_entries(self, entries: np.ndarray) -> None:
        """Add the entries of some sequences, or of their tokens, as `number` makes them."""
        self._pieces.append(entries.astype(self.dtype, copy=False))

    def finish(self) -> dict[str, Tensor]:
        """Return the arrays of the column; called once, at the end of the part."""
        count = sum(map(len, self._pieces))
        return {f"column.{self.name}": Tensor(self.dtype, count, self._pieces)}


class Int(Kind):
    """Integers of 64 bits."""

    dtype, is_ordered, make_test = "int64", True, staticmethod(make_integer_test)

    def read_all(self, columns: Sequence[list[Any]]) -> list[list[Any]]:
        """Return the values; raise ValueError unless all are integers in range."""
        (values,) = columns
        is_inside = set(map(type, values)) <= {int}
        if not is_inside or (values and not SMALLEST <= min(values) <= max(values) <= LARGEST):
            raise ValueError("not an integer")
        return [values]

    def read(self, values: Sequence[Any]) -> list[int]:
        """Return one value; raises BadRecordError."""
        (value,) = values
        if type(value) is not int:
            other = "float" if type(value) is float else None
            raise wrong_value_error(self.name, value, "an integer", other_kind=other)
        if not SMALLEST <= value <= LARGEST:
            raise wrong_value_error(self.name, value, f"an integer from {SMALLEST} to {LARGEST}")
        return [value]

    def parse(self, spelled: str) -> Any:
        """Return the integer that a field of CSV spells, else the text."""
        return _parse_number(spelled, int)


class Float(Kind):
    """Finite numbers of 64 bits; an integer must have an exact floating-point value."""

    dtype, is_ordered, make_test = "float64", True, staticmethod(make_float_test)

    def read_all(self, columns: Sequence[list[Any]]) -> list[list[Any]]:
        """Return the values; raise ValueError unless all are finite numbers."""
        (values,) = columns
        kinds = set(map(type, values))
        if not kinds <= {int, float} or not math.isfinite(sum(values)):
            raise ValueError("not a finite number")
        if int in kinds and not max(map(abs, values)) <= EXACT:  # nan if the first value is
            raise ValueError("a number that is not exact")
        return [values]

    def read(self, values: Sequence[Any]) -> list[float]:
        """Return one value; raises BadRecordError."""
        (value,) = values
        if type(value) not in (int, float):
            raise wrong_value_error(self.name, value, "a number")
        try:
            is_exact = type(value) is float or int(float(value)) == value
        except OverflowError:
            is_exact = False
        if not is_exact:
            raise wrong_value_error(self.name, value, "a number that 64-bit floating point holds")
        if not math.isfinite(value):
            raise wrong_value_error(self.name, value, "a finite number")
        return [float(value)]

    def parse(self, spelled: str) -> Any:
        """Return the number that a field of CSV spells, else the text."""
        return _parse_number(spelled, int, float)


class Class(Kind):
    """Class names of one type, any or one of a fixed list, numbered as they come.

    When the part is finished, they are numbered in sorted order, or in that of the list.
    """

    dtype, fill, has_classes = "int32", NO_CLASS, True
    make_test: Callable[[str, str, Sequence[Label]], Test] | None = staticmethod(make_class_test)

    def __init__(self, field: PlannedColumn, open_spool: OpenSpool | None = None) -> None:
        super().__init__(field, open_spool)
        self.value_type = field.value_type or "string"
        self._known = frozenset(field.class_names or ())
        self._numbers: dict[Any, int] = {None: NO_CLASS}
        self.number(field.class_names or ())

    def read_all(self, columns: Sequence[list[Any]]) -> list[list[Any]]:
        """Return the values; raise ValueError unless all are class names."""
        (values,) = columns
        kinds = set(map(type, values))
        if len(kinds) > 1 or float in kinds or not kinds <= set(LABEL_TYPES[self.value_type]):
            raise ValueError("not class names")
        found = set(values)
        if self._known and not found <= self._known:
            raise ValueError("an unknown class")
        if kinds == {int} and not SMALLEST <= min(found) <= max(found) <= LARGEST:
            raise ValueError("a large number")
        return [values]

    def read(self, values: Sequence[Any]) -> list[Label]:
        """Return one value; raises BadRecordError."""
        (value,) = values
        label = read_label(self.name, value, self.value_type)
        if self._known and label not in self._known:
            known = join_items(map(quote_value, self.field.class_names or ()))
            raise wrong_value_error(self.name, value, f"one of {known}")
        return [label]

    def parse(self, spelled: str) -> Any:
        """Return the class that a field of CSV spells: a number, or the text."""
        return _parse_number(spelled, int, float) if self.value_type == "number" else spelled

    def number(self, values: Sequence[Label | None]) -> np.ndarray:
        """Return the number of each class, int32; NO_CLASS for None."""
        numbers = self._numbers
        for label in dict.fromkeys(values):
            numbers.setdefault(label, len(numbers) - 1)  # beside None
        return np.fromiter(map(numbers.__getitem__, values), np.int32, len(values))

    def add_entries(self, entries: np.ndarray) -> None:
        """Add the numbers of classes; NO_CLASS is an entry without a class."""
        most = np.min_scalar_type(-1 - max(len(self._numbers), -NO_CLASS))  # signed, and narrow
        self._pieces.append(entries.astype(most))

    def finish(self) -> dict[str, Tensor]:
        """Return the numbers of the classes, and their names as JSON."""
        found = list(self._numbers)[1:]
        self.class_names = found if self._known else sort_labels(found, self.name)
        table = map_numbers(found, {label: i for i, label in enumerate(self.class_names)})
        pieces, count = (table[piece] for piece in self._pieces), sum(map(len, self._pieces))
        names = np.frombuffer(encode_json(self.class_names), np.uint8)
        return {
            f"column.{self.name}": Tensor("int32", count, pieces),
            f"class_names.{self.name}": Tensor.of(names),
        }


class Text(Kind):
    """Text, which is kept as it is: the ids of records, titles, sources."""

    dtype, is_text, make_test = "uint8", True, staticmethod(make_text_test)

    def __init__(self, field: PlannedColumn, open_spool: OpenSpool | None = None) -> None:
        super().__init__(field, open_spool)
        assert open_spool is not None  # noqa: S101 - that of its part
        self._spool = open_spool()

    def read_all(self, columns: Sequence[list[Any]]) -> list[list[Any]]:
        """Return the values; raise ValueError unless all are strings that UTF-8 can encode."""
        (values,) = columns
        "".join(values).encode()
        return [values]

    def read(self, values: Sequence[Any]) -> list[str]:
        """Return one value; raises BadRecordError."""
        (value,) = values
        if type(value) is not str:
            raise wrong_value_error(self.name, value, "a string")
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise wrong_value_error(self.name, value, "Unicode text") from error
        return [value]

    def add(self, values: Sequence[Any], num_sequences: np.ndarray) -> None:
        """Add the texts of some documents."""
        texts = TextValues.of(values)
        if (num_sequences > 1).any():
            texts = texts.take(np.repeat(np.arange(len(texts)), num_sequences))
        lengths = texts.lengths
        self._pieces.append(lengths.astype(np.min_scalar_type(int(lengths.max(initial=0)))))
        self._spool.write(texts.data.tobytes())

    def finish(self) -> dict[str, Tensor]:
        """Return the bytes of all texts, and where each begins."""
        name, count = f"column.{self.name}", sum(map(len, self._pieces)) + 1
        return {
            f"{name}.offsets": Tensor("int64", count, self._iter_offsets()),
            name: Tensor(self.dtype, self._spool.num_bytes, self._spool.read()),
        }

    def _iter_offsets(self) -> Iterator[np.ndarray]:
        end = np.zeros(1, np.int64)
        yield end
        for lengths in self._pieces:
            ends = end[-1] + np.cumsum(lengths, dtype=np.int64)
            yield ends
            end = ends[-1:] if len(ends) else end


def find_value_type(value: object) -> str | None:
    """Return the type of a class name, None if it cannot be one."""
    return next((name for name, types in LABEL_TYPES.items() if type(value) in types), None)


def read_label(name: str, value: Any, value_type: str) -> Label:
    """Return a class name of the column's type; raises BadRecordError.

    Equal numbers are one class: 1.0 is read as 1.
    """
    if type(value) not in LABEL_TYPES[value_type]:
        raise wrong_value_error(name, value, f"a {value_type} as in the first records")
    if type(value) is float and not math.isfinite(value):
        raise wrong_value_error(name, value, "a finite number")
    label = join_equal(value)
    if isinstance(label, int | float) and not SMALLEST <= label <= LARGEST:
        raise wrong_value_error(name, value, f"a number from {SMALLEST} to {LARGEST}")
    return label


def join_equal(label: Label) -> Label:
    """Return a whole float of at most 64 bits as the integer that it equals."""
    is_whole = type(label) is float and label.is_integer() and SMALLEST <= label <= LARGEST
    return int(label) if is_whole else label


def sort_labels(labels: Iterable[Label], name: str) -> list[Label]:
    """Sort class names of one type.

    Raises:
        DataError: there are too many.
    """
    found = sorted(set(labels))
    if len(found) > MAX_CLASSES:
        raise DataError(
            f"field {quote(name)}: more than {MAX_CLASSES:,} classes",
            hint="keep a field with that many values as text, and add --overwrite",
        )
    return found


def map_numbers(labels: Sequence[Label], number_of: Mapping[Any, int]) -> np.ndarray:
    """Return the table from the numbers of some classes to their numbers among others, int32.

    `table[numbers]` maps an array; NO_CLASS stays, as a place counted from the end.

    Args:
        number_of: the number of each class among the others.

    Raises:
        KeyError: a class is not among the others.
    """
    numbers = [number_of[label] for label in labels]
    return np.array([*numbers, NO_CLASS, *[0] * (-NO_CLASS - 1)], np.int32)


def wrong_value_error(
    name: str, value: Any, expected: str, *, other_kind: str | None = None
) -> BadRecordError:
    """Return the error about a value that is not of the column's kind.

    Args:
        other_kind: one that accepts the value, for the hint.
    """
    reason = f"field {quote(name)} is {quote_value(value)}, expected {expected}"
    if other_kind is None:
        return BadRecordError(reason)
    return BadRecordError(reason, f"pass {KEEP} {shlex.quote(f'{name}:{other_kind}')}")


def quote_value(value: Any) -> str:
    """Return a value of a record as errors name it.

    >>> quote_value("a"), quote_value(True), quote_value([1])
    ("'a'", 'true', 'a list')
    """
    names = {type(None): "null", bool: str(value).lower(), list: "a list", dict: "an object"}
    return names.get(type(value)) or quote(value)


def _parse_number(spelled: str, *types: type) -> Any:
    """Return the number of the first possible type that a text spells, else the text."""
    if "_" in spelled or spelled != spelled.strip():
        return spelled
    for each in types:
        with contextlib.suppress(ValueError):
            return each(spelled)
    return spelled

"""The columns file of one part: written once, then mapped and checked when it is read.

It holds `document_hashes`, one for each document of the part, and the columns: one entry per
sequence, or one per token. Classes are numbered as the part numbers them; `class_names.NAME` is the
JSON list of their names.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from seqpack_cli.errors import FolderError, quote
from seqpack_cli.files.json_files import encode_json
from seqpack_cli.files.places import Place
from seqpack_cli.files.tensor_file import Tensor, map_tensor_file, write_tensor_file
from seqpack_cli.tokens.columns.class_kind import NO_CLASS, map_numbers
from seqpack_cli.tokens.columns.column import Column
from seqpack_cli.tokens.columns.kind import Collected, Values
from seqpack_cli.tokens.columns.text_values import check_offsets

HASHES = "document_hashes"
FORMAT = "seqpack.columns"


def columns_name(part: str) -> str:
    """Return the name of a part's file of columns."""
    return f"{part}.columns.safetensors"


def write_part_columns(
    path: Place, hashes: Sequence[np.ndarray], collected: Mapping[str, Collected]
) -> dict[str, Any]:
    """Write the columns of a part; return the size and checksum of the file."""
    tensors = {HASHES: Tensor("uint64", sum(map(len, hashes)), hashes)}
    for name, column in collected.items():
        tensors |= column.tensors
        if column.class_names is not None:
            names = np.frombuffer(encode_json(column.class_names), np.uint8)
            tensors[f"class_names.{name}"] = Tensor.of(names)
    return write_tensor_file(path, tensors, {"format": FORMAT})


class ShownColumns(NamedTuple):
    """The columns of a store that are read.

    Class names may be more than those of the store; a constant is a column that no file holds.
    """

    columns: Mapping[str, Column]
    constants: Mapping[str, int] = {}  # by name: the value of every sequence or token of the store


class PartColumns:
    """The mapped columns of one part.

    Args:
        file: the file, or a local copy of it.
        path: shown in errors.
        part: the part's entry in the manifest.
        stored: the columns of the store, which the file must hold.
        shown: those of them to read, with the class names to which classes are mapped.

    Raises:
        FolderError: the file is damaged, or is not that of this part.
    """

    def __init__(
        self,
        file: Path,
        path: Place,
        part: dict[str, Any],
        *,
        stored: Mapping[str, Column],
        shown: ShownColumns,
    ) -> None:
        self._path = path
        self._shown, self._part = shown, part
        self._arrays, metadata = map_tensor_file(file, path, num_bytes=part["files"][2]["bytes"])
        if metadata.get("format") != FORMAT:
            raise FolderError(
                f"{path}: format is {quote(metadata.get('format'))}, expected {FORMAT!r}"
            )
        self._check_arrays(part, stored)
        self._tables = {
            name: self._make_table(column)
            for name, column in shown.columns.items()
            if column.class_names is not None and name not in shown.constants
        }

    @property
    def hashes(self) -> np.ndarray:
        """XXH3-64 of the text of each document, uint64[documents]."""
        return self._arrays[HASHES]

    @property
    def arrays(self) -> Mapping[str, np.ndarray]:
        """The mapped arrays by name."""
        return self._arrays

    def view(self, name: str) -> Values:
        """Return all entries of a column as they are stored: classes in the part's numbers."""
        column = self._shown.columns[name]
        if name in self._shown.constants:
            count = self._part["num_tokens" if column.is_per_token else "num_sequences"]
            value = np.array(self._shown.constants[name], column.dtype)
            return np.broadcast_to(value, count)
        return column.view(self._arrays)

    def finish(self, name: str, values: Values) -> Values:
        """Check entries that were taken from `view`; return them with the shown classes.

        Raises:
            FolderError: a value is impossible.
        """
        column = self._shown.columns[name]
        table = self._tables.get(name)
        if table is not None:
            assert isinstance(values, np.ndarray)  # noqa: S101 - classes are numbers
            num_classes = len(table) + NO_CLASS
            outside = (values >= num_classes) | (values < 0)
            if column.is_per_token:
                outside &= values != NO_CLASS
            if outside.any():
                raise self._wrong(column, int(values[outside.argmax()]))
            return table[values]
        if not column.is_sound(values):
            raise self._wrong(column)
        return values

    def _make_table(self, column: Column) -> np.ndarray:
        stored = self._arrays[f"class_names.{column.name}"]
        try:
            labels = json.loads(stored.tobytes())
            return map_numbers(labels, column.class_numbers)
        except (ValueError, KeyError, TypeError) as error:
            raise FolderError(
                f"{self._path}: class names of column {quote(column.name)} are not those of the "
                "manifest",
                hint="the store was changed or damaged: make it again with --overwrite",
            ) from error

    def _wrong(self, column: Column, number: int | None = None) -> FolderError:
        found = "a value that cannot be" if number is None else f"class {number}"
        return FolderError(
            f"{self._path}: column {quote(column.name)} holds {found}",
            hint="the store was changed or damaged: make it again with --overwrite",
        )

    def _check_arrays(self, part: dict[str, Any], columns: Mapping[str, Column]) -> None:
        expected = {HASHES: ("uint64", part["num_documents"])}
        for column in columns.values():
            is_per_token = column.is_per_token
            count = part["num_tokens"] if is_per_token else part["num_sequences"]
            for name, dtype in column.tensor_dtypes.items():
                expected[name] = (dtype, count)
            if column.is_text:
                expected[column.offsets_name] = ("int64", count + 1)
                expected[column.tensor_name] = ("uint8", -1)
            if column.class_names is not None:
                expected[f"class_names.{column.name}"] = ("uint8", -1)
        if set(self._arrays) != set(expected):
            raise FolderError(
                f"{self._path}: holds {sorted(self._arrays)}, expected {sorted(expected)}"
            )
        for name, (dtype, count) in expected.items():
            array = self._arrays[name]
            if array.dtype != dtype or count not in (-1, len(array)):
                raise FolderError(
                    f"{self._path}: {name} is {array.dtype}[{len(array)}], "
                    f"expected {dtype}[{count if count >= 0 else ''}]"
                )
        for column in columns.values():
            if column.is_text:
                self._check_offsets(column, part["num_sequences"])

    def _check_offsets(self, column: Column, num_texts: int) -> None:
        num_bytes = len(self._arrays[column.tensor_name])
        name = column.offsets_name
        try:
            check_offsets(self._arrays[name], num_texts=num_texts, num_bytes=num_bytes, name=name)
        except ValueError as error:
            raise FolderError(f"{self._path}: {error}") from error

"""The bytes that the ids and columns of a store take in shards, from its manifest alone.

Texts are of any length, so their mean over the whole store is counted: from the sizes of the files
of columns, less all that is not text. A file of shards may so be a little larger than asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from seqpack_cli.tokens.columns import Column
from seqpack_cli.tokens.store import TokenStore

BYTES_PER_HASH = 8


@dataclass(frozen=True)
class EntryBytes:
    """The bytes of ids and columns.

    Args:
        dtype: of the ids.
        texts: mean bytes of all texts of a row, rounded up.
        num_stores: whose digests each file names.
    """

    dtype: str
    columns: Mapping[str, Column] = field(default_factory=dict)
    texts: int = 0
    num_stores: int = 1

    @classmethod
    def of(cls, store: TokenStore) -> EntryBytes:
        """Return those of a store."""
        found = cls(store.dtype, store.columns, num_stores=len(store.folders))
        if not any(column.is_text for column in store.columns.values()):
            return found
        return replace(found, texts=-(-_count_text_bytes(found, store) // len(store)))

    @property
    def per_cell(self) -> int:
        """Bytes of an id and of the columns that have one value per token."""
        return np.dtype(self.dtype).itemsize + self._add_up(is_per_token=True)

    @property
    def per_row(self) -> int:
        """Bytes of the columns that have one value per sequence."""
        return self._add_up(is_per_token=False) + self.texts

    def _add_up(self, *, is_per_token: bool) -> int:
        return sum(
            np.dtype(dtype).itemsize
            for column in self.columns.values()
            if column.is_per_token == is_per_token
            for name, dtype in column.tensor_dtypes.items()
            if not column.is_text or name == column.offsets_name
        )


def _count_text_bytes(entries: EntryBytes, store: TokenStore) -> int:
    """Return the bytes of all texts of a store, and of the headers around them."""
    num_bytes: int = sum(part["files"][2]["bytes"] for part in store.parts)
    num_bytes -= BYTES_PER_HASH * store.num_documents
    for each in store.folders:
        constants = store.constants[each.number]
        stored = {name: it for name, it in entries.columns.items() if name not in constants}
        held = replace(entries, columns=stored)
        num_bytes -= (held.per_cell - np.dtype(store.dtype).itemsize) * each.num_tokens
        num_bytes -= held.per_row * each.num_sequences
    return max(num_bytes, 0)

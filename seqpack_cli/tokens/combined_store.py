"""Several token stores as one: parts and sequences are numbered over all, in the order given.

It has the verbs of a `TokenStore`, and asks the store of a part. To append to a corpus is to
tokenize the new files into a store of their own and to name it last: the indices of the sequences
before it stay what they are.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, SupportsIndex, overload

import numpy as np
from blake3 import blake3

from seqpack_cli.errors import join_items
from seqpack_cli.ranges import find_index, to_offsets
from seqpack_cli.tokens.columns.column import Column
from seqpack_cli.tokens.columns.kind import Values
from seqpack_cli.tokens.columns.store_columns import CombinedColumns
from seqpack_cli.tokens.origin import Origin
from seqpack_cli.tokens.token_store import TokenStore

SHARED = ("dtype", "vocab_size", "max_id", "pad_id", "bos_id", "eos_id", "unk_id")


class CombinedStore:
    """The sequences of several token stores; an item is one, read-only, a slice a list.

    Args:
        stores: of the same tokenizer, shown with the same columns: see `open_store`.
    """

    def __init__(self, stores: Sequence[TokenStore]) -> None:
        self.stores = tuple(stores)
        first = stores[0]
        self.dtype, self.max_id = first.dtype, first.max_id
        self.digest = blake3(" ".join(store.digest for store in stores).encode()).hexdigest()
        names = (*SHARED, "tokenizer_blake3")
        self.manifest: dict[str, Any] = {name: first.manifest[name] for name in names}
        self.stored_columns = CombinedColumns([store.stored_columns for store in stores])
        self._store_offsets = to_offsets([len(store) for store in stores])
        self._first_parts = to_offsets([store.num_parts for store in stores])
        self._first_documents = to_offsets([store.num_documents for store in stores])
        counts = chain.from_iterable(np.diff(store.part_offsets).tolist() for store in stores)
        self.part_offsets = to_offsets(list(counts))

    def __len__(self) -> int:
        return int(self._store_offsets[-1])

    def __repr__(self) -> str:
        counts = f"num_sequences={len(self)}, num_tokens={self.num_tokens}"
        return f"CombinedStore({[str(store.path) for store in self.stores]!r}, {counts})"

    @overload
    def __getitem__(self, index: SupportsIndex) -> np.ndarray: ...

    @overload
    def __getitem__(self, index: slice) -> list[np.ndarray]: ...

    def __getitem__(self, index: SupportsIndex | slice) -> np.ndarray | list[np.ndarray]:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        store, inside = self._find_sequence(index)
        return store[inside]

    def __iter__(self) -> Iterator[np.ndarray]:
        return chain.from_iterable(self.stores)

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        state.pop("lengths", None)  # mapped again
        return state

    @property
    def shown_path(self) -> str:
        """The folders, as messages name them."""
        return join_items(store.shown_path for store in self.stores)

    @property
    def num_parts(self) -> int:
        """The number of parts of all stores."""
        return int(self._first_parts[-1])

    @property
    def num_documents(self) -> int:
        """The number of documents, including those without a sequence."""
        return int(self._first_documents[-1])

    @property
    def num_tokens(self) -> int:
        """The number of ids in all sequences."""
        return sum(store.num_tokens for store in self.stores)

    @functools.cached_property
    def lengths(self) -> np.ndarray:
        """The lengths of all sequences, int32[N]."""
        parts = map(self.part_lengths, range(self.num_parts))
        return np.concatenate([np.empty(0, np.int32), *parts])

    @property
    def columns(self) -> Mapping[str, Column]:
        """The columns by name; classes are those of all stores."""
        return self.stores[0].columns

    def find_part(self, number: int) -> tuple[TokenStore, int]:
        """Return the store of a part, and the number of the part there."""
        number = find_index(number, self.num_parts, "part")
        place = int(np.searchsorted(self._first_parts, number, "right")) - 1
        return self.stores[place], number - int(self._first_parts[place])

    def part_lengths(self, number: int) -> np.ndarray:
        """Map the lengths of one part, int32: see `TokenStore.part_lengths`."""
        store, inside = self.find_part(number)
        return store.part_lengths(inside)

    def view_part(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        """Return all ids of one part, and where each sequence starts: see `TokenStore`."""
        store, inside = self.find_part(number)
        return store.view_part(inside)

    def part_column(self, number: int, name: str) -> Values:
        """Return a column of one part, with the classes of all stores."""
        store, inside = self.find_part(number)
        return store.part_column(inside, name)

    def part_hashes(self, number: int) -> np.ndarray:
        """Return XXH3-64 of the text of each document of one part, uint64[documents]."""
        store, inside = self.find_part(number)
        return store.part_hashes(inside)

    def count_sequences(self, number: int) -> np.ndarray:
        """Return the number of sequences of each document of one part, int64[documents]."""
        store, inside = self.find_part(number)
        return store.count_sequences(inside)

    def number_documents(self, number: int) -> np.ndarray:
        """Return the document of each sequence of one part, counted over all stores, int64."""
        store, inside = self.find_part(number)
        first = int(self._first_documents[self.stores.index(store)])
        numbers: np.ndarray = store.number_documents(inside) + first
        return numbers

    def spread(self, number: int, values: np.ndarray) -> np.ndarray:
        """Return the value of each sequence's document: see `TokenStore.spread`."""
        store, inside = self.find_part(number)
        return store.spread(inside, values)

    def locate(self, index: SupportsIndex) -> Origin:
        """Find the store, source file, record and piece that a sequence came from."""
        store, inside = self._find_sequence(index)
        return store.locate(inside)

    def let_pages_go(self) -> None:
        """Release the pages that this process has read; the system's page cache keeps them."""
        for store in self.stores:
            store.let_pages_go()

    def read_tokenizer_json(self) -> bytes:
        """Return the tokenizer.json of the stores, checked against the manifest of the first."""
        return self.stores[0].read_tokenizer_json()

    def check_digest(self) -> None:
        """Compare the checksums of all files with the manifests, on all cores."""
        for store in self.stores:
            store.check_digest()

    def check_indices(self, first: int = 0, last: int | None = None) -> None:
        """Read every index of a range of parts and compare it with the manifests."""
        stop = self.num_parts if last is None else last
        for store, start in zip(self.stores, self._first_parts.tolist(), strict=False):
            store.check_indices(max(first - start, 0), max(stop - start, 0))

    def _find_sequence(self, index: SupportsIndex) -> tuple[TokenStore, int]:
        index = find_index(index, len(self), "sequence")
        place = int(np.searchsorted(self._store_offsets, index, "right")) - 1
        return self.stores[place], index - int(self._store_offsets[place])

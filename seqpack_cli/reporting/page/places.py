"""Where each sequence is: the arrays that the search of the page reads.

The page has the first MAX_SEQUENCES, 16 or 20 bytes each; the command line finds the others.
"""

from __future__ import annotations

import base64
from typing import Any

import numpy as np

from seqpack_cli.batching.options import LAYOUTS
from seqpack_cli.ranges import to_offsets
from seqpack_cli.reporting.contents import has_one_row
from seqpack_cli.reporting.opened import Opened, list_store_names, spell_path
from seqpack_cli.shards.shard_set import ShardSet
from seqpack_cli.tokens.store import TokenStore

MAX_SEQUENCES = 100_000
MAX_SOURCES = 10_000
NOWHERE = -1  # a dropped sequence, an unknown document


def collect_places(opened: Opened, store: TokenStore | None) -> dict[str, Any]:
    """Return batch, row, length and document of each sequence, by its index in the token store.

    Args:
        store: the token store of the shards; None if it cannot be read.

    Returns:
        `num_sequences`, and `num_sent` of them; base64 of little-endian int32 arrays, in which a
        dropped sequence has length -1; `sources` with the first document of each, and `stores` if
        there are several. `pieces` counts the rows of each sequence in one visit, if any is split,
        and `visits` how often it is packed, if any is packed again.
    """
    num_sequences = opened.num_store_sequences if isinstance(opened, ShardSet) else len(opened)
    num_sent = min(num_sequences, MAX_SEQUENCES)
    if isinstance(opened, ShardSet):
        arrays = _find_rows(opened, num_sent)
    else:
        arrays = {"lengths": opened.lengths[:num_sent]}
    if store is not None:
        arrays["documents"] = _find_documents(store, num_sent)
    return {
        "num_sequences": num_sequences,
        "num_sent": num_sent,
        "missing": _spell_missing(opened),
        "row_name": _name_row(opened),
        "sources": _list_sources(store) if store is not None else [],
        "stores": _list_stores(store) if store is not None else [],
        **{name: _encode(array) for name, array in arrays.items()},
    }


def _find_rows(shards: ShardSet, num_sent: int) -> dict[str, np.ndarray]:
    """Find the length of each sequence, and the batch and row of it or of its first piece.

    Where a batch is a single row, rows are left out.
    """
    batches, rows = (np.full(num_sent, NOWHERE, np.int64) for _ in range(2))
    lengths, pieces, visits = (np.zeros(num_sent, np.int64) for _ in range(3))
    for number in reversed(range(shards.num_shards)):  # the first visit stays
        arrays = shards.open_shard(number).arrays
        tensors, batch = arrays.tensors, arrays.batch_of_rows
        indices, starts = tensors["original_indices"], tensors["sequence_offsets"]
        is_sent = (indices >= 0) & (indices < num_sent)
        is_first = is_sent & (arrays.piece_starts == 0)
        row = np.arange(len(indices)) - starts[batch]
        row = tensors.get("row_indices", row)
        found, places = np.unique(indices[is_first], return_index=True)
        batches[found] = batch[is_first][places] + shards.batch_offsets[number]
        rows[found] = row[is_first][places]
        np.add.at(lengths, indices[is_sent], tensors["lengths"][is_sent])
        np.add.at(pieces, indices[is_sent], 1)
        np.add.at(visits, indices[is_first], 1)
    once = np.maximum(visits, 1)
    lengths = np.where(visits > 0, lengths // once, NOWHERE)
    arrays_sent = {"batches": batches, "rows": rows, "lengths": lengths}
    if has_one_row(shards):
        del arrays_sent["rows"]
    for name, numbers in (("pieces", pieces // once), ("visits", visits)):
        if (numbers > 1).any():
            arrays_sent[name] = numbers
    return arrays_sent


def _find_documents(store: TokenStore, num_sent: int) -> np.ndarray:
    documents = np.full(num_sent, NOWHERE, np.int64)
    for number, first in enumerate(store.part_offsets[:-1].tolist()):
        if first >= num_sent:
            break
        found = store.number_documents(number)[: num_sent - first]
        documents[first : first + len(found)] = found
    return documents


def _list_sources(store: TokenStore) -> list[list[Any]]:
    """Return path and first document of each source; none if there are more than MAX_SOURCES."""
    found, first = list[list[Any]](), 0
    for each in store.folders:
        sources = each.manifest["sources"]
        found += [[spell_path(it["path"]), first + it["first_document"]] for it in sources]
        first += each.num_documents
    return found if len(found) <= MAX_SOURCES else []


def _spell_missing(opened: Opened) -> str:
    """Return why a sequence may not be in shards."""
    if isinstance(opened, ShardSet) and opened.options.split_name is not None:
        return "in another split, or dropped"
    return "dropped"


def _name_row(opened: Opened) -> str:
    carries_state = isinstance(opened, ShardSet) and LAYOUTS[opened.layout].carries_state
    return "stream" if carries_state else "row"


def _list_stores(store: TokenStore) -> list[list[Any]]:
    """Return name and first document of each of several stores."""
    firsts = to_offsets([each.num_documents for each in store.folders]).tolist()
    return [[name, first] for name, first in zip(list_store_names(store), firsts, strict=False)]


def _encode(array: np.ndarray) -> str:
    return base64.b64encode(array.astype("<i4").tobytes()).decode()

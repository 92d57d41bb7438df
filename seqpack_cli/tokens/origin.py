"""Where a sequence of a token store came from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from seqpack_cli.files.places import Place


@dataclass(frozen=True)
class Origin:
    """Where a sequence came from."""

    store: str  # path of the token store
    source: str  # path of the input file
    record: int  # in that file, from 1: the line number in a line file
    document: int  # in that store, from 0
    piece: int  # of the document, from 0
    num_pieces: int


def find_origin(
    path: Place,
    manifest: dict[str, Any],
    first_sequences: np.ndarray,
    sequence: int,
    first_document: int,
) -> Origin:
    """Find the source file, record and piece of a sequence of one part.

    Args:
        path, manifest: of the store.
        first_sequences: int64[documents + 1], of the part.
        sequence: counted through the part.
        first_document: of the part, in the whole store.
    """
    inside = int(np.searchsorted(first_sequences, sequence, "right")) - 1
    document = first_document + inside
    firsts = [source["first_document"] for source in manifest["sources"]]
    source = manifest["sources"][int(np.searchsorted(firsts, document, "right")) - 1]
    return Origin(
        store=str(path),
        source=source["path"],
        record=document - source["first_document"] + 1,
        document=document,
        piece=sequence - int(first_sequences[inside]),
        num_pieces=int(first_sequences[inside + 1] - first_sequences[inside]),
    )

"""The columns that `tokenize` makes from no field: their names, kinds, and values if missing.

`targets` says which tokens count in the loss. `overlap` is the number of tokens with which a
sequence repeats the end of the one before, a piece of the same document.
"""

from __future__ import annotations

TARGETS, OVERLAP = "targets", "overlap"
KINDS_OF_MADE = {TARGETS: "targets", OVERLAP: "int"}
# Of every token, or sequence, of a store that has no such column: all count, none is repeated.
VALUES_OF_MISSING = {TARGETS: 1, OVERLAP: 0}

"""Why sequences are left out: the names under which ledgers count them.

Those of pairs may have the side before them that is at fault: `decoder.drop_longer`.
"""

OTHER_SPLITS, WHERE, NO_TARGET, PASSES = "other_splits", "where", "no_target", "passes"
EMPTY, DROP_SHORTER, DROP_LONGER, OVERFLOW = "empty", "drop_shorter", "drop_longer", "overflow"

"""The characters of which `tokenizers` 1.0 may make other ids than 0.23, whose tables are older.

Measured with 1.0.0rc3 and 0.23.3 on every character that Unicode added since version 8, alone and
beside letters, digits and every class of accents. They are rare: new scripts, and new marks and
punctuation of old ones. A tokenizer is concerned only by the tables that its parts use.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

import numpy as np

# Unicode 17: letters, marks and digits, for every regex and class of characters.
UNICODE_17 = (
    "88f c5c cdc 1acf-1add 1ae0-1aeb a7ce-a7cf a7d2 a7d4 a7f1 10940-10959 10ec5-10ec7 "
    "10efa-10efb 11b60-11b67 11db0-11ddb 11de0-11de9 16ea0-16eb8 16ebb-16ed3 16ff2-16ff6 "
    "187f8-187ff 18d09-18d1e 18d80-18df2 1e6c0-1e6de 1e6e0-1e6f5 1e6fe-1e6ff 2b73a-2b73f "
    "2cea2-2cead 323b0-33479"
)
# Marks that are put in another order, and letters that are composed.
NORMALIZED = (
    "7fd 897-89f 8ca-8d3 9fe c3c d3b-d3c eba 1715 1abf-1ace 1df6-1dfa a82c 105c9 105e4 "
    "10d24-10d27 10d69-10d6d 10eab-10eac 10efd-10eff 10f46-10f50 10f82-10f85 11070 1133b "
    "11383 11385 1138e 11391 113c2 113c5 113c7-113c8 113ce-113d0 1145e 11839-1183a 11938 "
    "1193d-1193e 11943 119e0 11a34 11a47 11a99 11d42 11d44-11d45 11d97 11f41-11f42 1611e "
    "16121-16128 1612f 16d67-16d6a 16ff0-16ff1 1e08f 1e130-1e136 1e2ae 1e2ec-1e2ef "
    "1e4ec-1e4ef 1e5ee-1e5ef"
)
COMPATIBLE = (
    "32ff a7f2-a7f4 ab69 10781-10785 10787-107b0 107b2-107ba 1ccd6-1ccf9 1e030-1e06d 1f16c "
    "1fbf0-1fbf9"
)
PUNCTUATION = (
    "61d 9fd a76 c77 c84 166d 1b4e-1b4f 1b7d-1b7f 2e43-2e4f 2e52-2e5d 10d6e 10ead 10ed0 "
    "10f55-10f59 10f86-10f89 111c9 113d4-113d5 113d7-113d8 1144b-1144f 1145a-1145b 1145d "
    "11660-1166c 116b9 1183b 11944-11946 119e2 11a3f-11a46 11a9a-11a9c 11a9e-11aa2 "
    "11b00-11b09 11be1 11c41-11c45 11c70-11c71 11ef7-11ef8 11f43-11f4f 11fff 12ff1-12ff2 "
    "16d6d-16d6f 16e97-16e9a 16fe2 1e5ff 1e95e-1e95f"
)
TABLES = {
    **dict.fromkeys(("NFC", "NFD", "BertNormalizer"), NORMALIZED),
    **dict.fromkeys(("NFKC", "NFKD"), f"{NORMALIZED} {COMPATIBLE}"),
    **dict.fromkeys(("BertPreTokenizer", "Punctuation"), PUNCTUATION),
}


class NewerCharacters:
    """Finds characters that the parts of a tokenizer.json may read differently.

    Args:
        saved: a normalizer or pre-tokenizer, or a list of them; None for any.

    >>> NewerCharacters({"type": "BertPreTokenizer"}).find(["a b", "a ⹃ b"])
    '⹃'
    """

    def __init__(self, saved: Any = None) -> None:
        names = TABLES if saved is None else _list_types(saved)
        self._is_newer = np.zeros(sys.maxunicode + 1, bool)
        for pair in " ".join([UNICODE_17, *(TABLES.get(name, "") for name in names)]).split():
            first, _, last = pair.partition("-")
            self._is_newer[int(first, 16) : int(last or first, 16) + 1] = True

    def find(self, texts: Iterable[str]) -> str | None:
        """Return the first such character in some texts, None if there is none: 500 MB/s."""
        joined = "".join(text for text in texts if not text.isascii())
        codes = np.frombuffer(joined.encode("utf-32-le"), "<u4")
        found = np.flatnonzero(self._is_newer[codes])
        return joined[found[0]] if len(found) else None


def _list_types(saved: Any) -> list[str]:
    """Return the types of the parts in a normalizer or pre-tokenizer, or in some of them."""
    if isinstance(saved, dict):
        found = [saved["type"]] if isinstance(saved.get("type"), str) else []
        saved = list(saved.values())
    else:
        found = []
    if isinstance(saved, list):
        return [*found, *(name for child in saved for name in _list_types(child))]
    return found

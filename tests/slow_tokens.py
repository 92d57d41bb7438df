"""What `tokenizers` says of a text, the slow and plain way: its ids, and the place of each."""

from __future__ import annotations

import json
import random
import unicodedata
from typing import Any

from tokenizer_kinds import ADDED_TOKEN, SPECIAL_TOKENS
from tokenizers import Tokenizer

# Unicode's White_Space; Python's has \x1c to \x1f, too.
SPACES = "\t\n\x0b\x0c\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(
    map(chr, range(0x2000, 0x200B))
)
PIECES = (
    *("a", "bc", "word ", "é", "漢", "𝄞", "The cat", " the", "don't", "'LL", "12345", "½", "①"),
    *("\n", "\r\n", "\n\n", "\n \t\n", " ", "  ", "\t", "\r", "\x00", "\x0b", "\x1c", "\x85"),
    *("\u2028", "\u2029", "\u00a0", "\ufeff", "\u3000", "\u200b", "\xad", "\u180e", "\ufffd"),
    *("e\u0301", "\u0301", "A\u0323\u0301", "\u1112\u1161\u11ab", "ﬁ", "…", "´", "İ", "ß", "ſ"),
    *("🙂", "👩\u200d👩", "👍🏽", "中文", "ไทย", "नमस्ते", "العربية"),
    *("##s", "<0x41>", "▁", "Ġ", "[MASK]"),
    *("\u0378", "\ue000", "\U0010ffff", ADDED_TOKEN, ADDED_TOKEN[:-1], ADDED_TOKEN.title()),
    *SPECIAL_TOKENS,
    *(token[:-1] for token in SPECIAL_TOKENS),
    *(token.swapcase() for token in SPECIAL_TOKENS),
)
RANGES = (0x80, 0x300, 0x3000, 0x110000)


def random_texts(seed: int, count: int, *, without: str = "") -> list[str]:
    """Return texts of pieces that tokenizers treat specially, and of any characters."""
    numbers = random.Random(seed)

    def draw() -> str:
        if numbers.random() < 0.75:
            return numbers.choice(PIECES)
        return chr(numbers.randrange(numbers.choice(RANGES)))

    texts = ["".join(draw() for _ in range(numbers.randrange(13))) for _ in range(count)]
    dropped = dict.fromkeys([*range(0xD800, 0xE000), *map(ord, without)])
    return [text.translate(dropped) for text in texts]


def library_of(data: str, *, allow: bool) -> Tokenizer:
    """Open a tokenizer.json; unless special tokens are allowed, no text can spell them.

    Models that have them as words would write them: there they have a space in their names, which
    no word has. Neither template nor truncation nor padding is left.
    """
    saved = json.loads(data)
    saved |= {"post_processor": None, "truncation": None, "padding": None}
    special = [token["content"] for token in saved["added_tokens"] if token["special"]]
    names = {} if allow else {token: f" hidden {at} " for at, token in enumerate(special)}

    def rename(value: Any) -> Any:
        if isinstance(value, dict):
            return {names.get(key, key): rename(each) for key, each in value.items()}
        if isinstance(value, list):
            return [rename(each) for each in value]
        return names.get(value, value)

    merges = saved["model"].get("merges", [])
    merges[:] = [it for it in merges if names.keys().isdisjoint([*it, "".join(it)])]
    library = Tokenizer.from_str(json.dumps(rename(saved)))
    library.encode_special_tokens = not allow
    return library


def trim(text: str, start: int, end: int) -> tuple[int, int]:
    """Leave the spaces around a token out."""
    piece = text[start:end]
    start += len(piece) - len(piece.lstrip(SPACES))
    return start, start + len(piece.strip(SPACES))


def cover_marks(text: str, places: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Extend tokens over marks without a token, which were composed with their last character."""
    covered = {at for start, end in places for at in range(start, end)}
    found = []
    for start, end in places:
        behind = end
        while start < behind < len(text) and behind not in covered:
            piece = text[end - 1 : behind + 1]
            if text[behind] in SPACES or len(unicodedata.normalize("NFKC", piece)) == len(piece):
                break
            behind += 1
        found.append((start, behind))
    return found


def find_targets(text: str, places: list[tuple[int, int]], border: int) -> tuple[list[int], int]:
    """Return which tokens have all their characters behind a border, and how many straddle it."""
    bits = []
    for start, end in places:
        if start == end:  # what is beside it decides
            start, end = max(0, start - 1), min(len(text), end + 1)
        bits.append(int(border <= start < end))
    return bits, sum(start < border < end for start, end in places)


def tag_tokens(
    segments: list[tuple[int, Any]], places: list[tuple[int, int]], subtokens: str
) -> tuple[list[Any], set[int]]:
    """Return the label of each token, and the segments in which a token begins.

    Args:
        segments: the first character and label of each, in order.
        places: of each token, spaces left out.
    """
    labels, seen = [None] * len(places), set[int]()
    for place, (start, end) in enumerate(places):
        if start < end:
            number = max(at for at, (first, _) in enumerate(segments) if first <= start)
            if subtokens == "all" or number not in seen:
                labels[place] = segments[number][1]
            seen.add(number)
    return labels, seen


def cut_spans(text: str, spans: list[list[Any]], outside: Any) -> list[tuple[int, Any]]:
    """Return the segments of a text with spans: runs without spaces, cut at each border."""
    segments: list[tuple[int, Any]] = []
    label_of = {at: (start, label) for start, end, label in spans for at in range(start, end)}
    last = None
    for at, character in enumerate(text):
        start, label = label_of.get(at, (-1 - sum(end <= at for _, end, _ in spans), outside))
        piece = None if character in SPACES else (start, label)
        if piece is not None and piece != last:
            segments.append((at, label))
        last = piece
    for start, end, label in spans:
        if not text[start:end].strip(SPACES):
            segments.append((start, label))
    return sorted(segments, key=lambda segment: segment[0])


def split_text(library: Tokenizer, ids: list[int]) -> list[tuple[str, list[int]]]:
    """Return the pieces of a text between the token borders at which a prefix of it ends.

    Of many ids, the first 256 are split.
    """
    whole = library.decode(ids, skip_special_tokens=False)
    pieces, waiting, done = list[tuple[str, list[int]]](), list[int](), ""
    for count, id_ in enumerate(ids[:256], 1):
        waiting.append(id_)
        text = library.decode(ids[:count], skip_special_tokens=False)
        if not whole.startswith(text):
            continue
        if len(text) > len(done):
            pieces.append((text[len(done) :], waiting))
            done, waiting = text, []
        elif pieces:
            pieces[-1][1].extend(waiting)
            waiting = []
    return pieces or [("", ids)]

"""Show how a vocabulary is used in a terminal of 80 columns."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Any

from seqpack_cli.batching.options import DECODER, ENCODER
from seqpack_cli.errors import escape_controls
from seqpack_cli.reporting.opened import spell_source
from seqpack_cli.reporting.wording import WIDTH, count, cut, cut_front, pair, quote_text

MAX_SHOWN = 16  # of many special tokens
MAX_CHARACTERS = 256  # of a token or text; more does not fit a line
HEAD = f"{'id':>14} {'tokens':>15} {'share':>7}  token"


def show_vocabulary_use(found: dict[str, Any]) -> list[str]:
    """Return the lines of used and unused tokens, and of unknown and special ones with examples."""
    if "decoder" not in found:
        return _show_side(found, f" of the {found['side']}" if "side" in found else "")
    decoder = {"path": found["path"], **found["decoder"]}
    of_encoder, of_decoder = f" of the {ENCODER}", f" of the {DECODER}"
    return [*_show_side(found, of_encoder), "", *_show_side(decoder, of_decoder)]


def _show_side(found: dict[str, Any], whose: str) -> list[str]:
    title = f"vocabulary{whose}  "
    lines = [
        title + cut_front(escape_controls(found["path"]), WIDTH - len(title)),
        *_show_counts(found),
        *_show_missing(found["missing"]),
        "",
        *_show_unknown(found),
        "",
        *_show_special(found["special_tokens"]),
        "",
        *_show_spelled(found["spelled_in_text"]),
        "most frequent",
        HEAD,
        *map(_show_counted, found["most_frequent"]),
    ]
    return [cut(line, WIDTH) for line in lines]


def _show_counts(found: dict[str, Any]) -> Iterator[str]:
    yield pair("tokens", f"{found['num_tokens']:,}")
    yield pair("vocabulary", f"{found['vocab_size']:,} tokens, ids 0 to {found['max_id']:,}")
    if found["tokenizer_blake3"] is None:
        yield pair("tokenizer", "none: ids are not decoded")
    yield pair("used", count(found["num_used_ids"], "id"))
    never_used = count(found["num_never_used_ids"], "id")
    yield pair("never used", f"{never_used}, {found['never_used_share']:.2%} of the vocabulary")
    for name, kind in found["never_used"].items():
        if kind["num_ids"]:
            listed = ", ".join(
                f"{entry['id']} {_name(entry)}".rstrip() for entry in kind["examples"]
            )
            yield pair(f"  {name}", f"{kind['num_ids']:,}: {listed}")
    if found["missing"]["num_ids"]:
        yield pair("ids without token", f"{found['missing']['num_ids']:,}")


def _show_missing(missing: dict[str, Any]) -> Iterator[str]:
    if missing["num_tokens"]:
        yield ""
        tokens = count(missing["num_tokens"], "token")
        yield f"error: {tokens} with ids that are not in the vocabulary"
        for example in missing["examples"]:
            yield from _show_example(example, f"id {example['id']:,}, ")


def _show_unknown(found: dict[str, Any]) -> Iterator[str]:
    unknown, owner = found["unknown"], "vocabulary"
    if unknown is None:
        owner = "vocabulary" if found["tokenizer_blake3"] is not None else "store"
        yield f"unknown tokens  none: the {owner} has no unknown token"
        return
    counted = f"{unknown['num_tokens']:,}, {unknown['share']:.2%} of all tokens"
    yield f"unknown tokens  {counted}: id {unknown['id']} {_name(unknown)}".rstrip()
    for example in unknown["examples"]:
        yield from _show_example(example, "")


def _show_example(example: dict[str, Any], what: str) -> Iterator[str]:
    place = f"  {what}sequence {example['sequence']:,}, position {example['position']:,}: "
    origin = example["origin"]
    if origin is None:
        yield place + "the token store cannot be read"
    else:
        record = f", record {origin['record']:,}"
        source = spell_source(origin["source"], origin.get("store_name"))
        path = cut_front(escape_controls(source), WIDTH - len(place) - len(record))
        yield place + path + record
    if example["text"] is not None:
        yield f"    {quote_text(example['text'][:MAX_CHARACTERS])}"


def _show_special(tokens: list[dict[str, Any]]) -> Iterator[str]:
    if not tokens:
        yield "special tokens  none"
        return
    yield "special tokens in the ids"
    yield HEAD
    yield from map(_show_counted, tokens[:MAX_SHOWN])
    yield from _count_hidden(tokens)


def _show_spelled(spelled: dict[str, Any] | None) -> Iterator[str]:
    """Yield the lines, none of a store without texts, and an empty one behind them."""
    if spelled is not None:
        yield from _list_spelled(spelled)
        yield ""


def _list_spelled(spelled: dict[str, Any]) -> Iterator[str]:
    title = "special tokens spelled out in the text"
    number, tokens = spelled["num_tokens"], spelled["tokens"]
    if number is None:
        yield f"{title}  unknown: the token store cannot be read"
    elif not tokens:
        yield f"{title}  none"
    else:
        yield f"{title}  {number:,}"
        for entry in tokens[:MAX_SHOWN]:
            yield f"{entry['count']:>14,}  {quote_text(entry['token'][:MAX_CHARACTERS])}"
            yield from _show_places(entry)
        yield from _count_hidden(tokens)


def _show_places(entry: dict[str, Any]) -> Iterator[str]:
    """Yield the first records that hold a token, one line per source."""
    for source, places in groupby(entry["places"], key=lambda place: place["source"]):
        records = [f"{place['record']:,}" for place in places]
        listed = f", record{'s' * (len(records) > 1)} {', '.join(records)}"
        room = max(WIDTH - 16 - len(listed), 1)
        yield " " * 16 + cut_front(escape_controls(source), room) + listed


def _show_counted(entry: dict[str, Any]) -> str:
    numbers = f"{entry['id']:>14,} {entry['num_tokens']:>15,} {entry['share']:>7.2%}"
    return f"{numbers}  {_name(entry)}".rstrip()


def _count_hidden(tokens: list[dict[str, Any]]) -> Iterator[str]:
    if len(tokens) > MAX_SHOWN:
        yield f"  and {len(tokens) - MAX_SHOWN:,} more (all with --json)"


def _name(entry: dict[str, Any]) -> str:
    """Return the quoted text of a token; its bytes or its name if it is not text of its own."""
    if entry["text"] is None:  # no tokenizer
        return ""
    if entry["bytes"] is not None:
        return f"bytes {entry['bytes']}"[:MAX_CHARACTERS]
    text = entry["text"] if entry["text"] and "\ufffd" not in entry["text"] else entry["token"]
    return quote_text((text or "")[:MAX_CHARACTERS])

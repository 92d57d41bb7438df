"""Plain values -> lines for a terminal of 80 columns."""

from __future__ import annotations

import json
from typing import Any

WIDTH = 80
BAR_WIDTH = 40
MAX_ROWS = 20
MAX_LISTED = 16


def show_numbers(numbers: dict[str, Any]) -> list[str]:
    """Show the numbers of a token store or of shards."""
    if numbers["kind"] == "shards":
        return [*_head_of_shards(numbers), "", *_show_lengths(numbers["lengths"])]
    return [*_head_of_store(numbers), "", *_show_lengths(numbers["lengths"])]


def show_batch(batch: dict[str, Any]) -> list[str]:
    """Show one batch: its shape and the beginning of each row."""
    lines = [
        f"batch {batch['batch']}  ({batch['shard']}, batch {batch['batch_in_shard']})",
        _pair("rows", f"{batch['num_rows']:,}"),
        _pair("longest", f"{batch['longest']:,}"),
        _pair("tokens", f"{batch['num_tokens']:,}"),
        _pair("padding cells", f"{batch['num_padding_cells']:,}"),
    ]
    for name in ("num_filler_rows", "bucket_key", "width"):
        if batch.get(name):
            lines.append(_pair(name.removeprefix("num_").replace("_", " "), f"{batch[name]:,}"))
    if "cu_seqlens" in batch:
        lines.append(_pair("cu_seqlens", _list_some(batch["cu_seqlens"])))
    if "batch_sizes" in batch:
        lines.append(_pair("batch_sizes", _list_some(batch["batch_sizes"])))
    lines += ["", f"{'row':>5} {'sequence':>9} {'length':>8}  text"]
    for row, entry in enumerate(batch["rows"][:MAX_ROWS]):
        head = f"{row:>5} {entry['original_index']:>9,} {entry['length']:>8,}  "
        if entry.get("piece_start"):
            head += f"(from token {entry['piece_start']:,}) "
        lines.append(head + _cut(_quote(entry["text"]), WIDTH - len(head)))
    hidden = len(batch["rows"]) - MAX_ROWS
    return [*lines, f"      and {hidden:,} more rows (all with --json)"] if hidden > 0 else lines


def show_sequence(sequence: dict[str, Any]) -> list[str]:
    """Show one sequence: where it came from, its ids and its text."""
    lines = [f"sequence {sequence['sequence']:,}"]
    origin = sequence["origin"]
    if origin is None:
        lines.append(_pair("source", "unknown: the token store is no longer there"))
    else:
        lines.append(_pair("source", f"{origin['source']}, record {origin['record']:,}"))
        lines.append(_pair("document", f"{origin['document']:,}"))
        if origin["num_pieces"] > 1:
            lines.append(_pair("piece", f"{origin['piece'] + 1:,} of {origin['num_pieces']:,}"))
    if "shard" in sequence:
        place = f"{sequence['shard']}, batch {sequence['batch']:,}, row {sequence['row']:,}"
        if sequence["num_rows"] > 1:
            place += f", and {sequence['num_rows'] - 1:,} more for its other pieces"
        lines.append(_pair("shard", place))
    return [
        *lines,
        _pair("length", f"{sequence['length']:,} tokens"),
        _pair("ids", _list_some(sequence["ids"])),
        _pair("text", _cut(_quote(sequence["text"]), WIDTH * 4)),
    ]


def _head_of_store(numbers: dict[str, Any]) -> list[str]:
    ledger = numbers["ledger"]
    run = numbers["run"] or {}
    sizes = f"{count(numbers['num_parts'], 'part')} of {count(numbers['num_sources'], 'source')}"
    lines = [
        f"token store  {numbers['path']}",
        _pair("documents", f"{ledger['num_documents']:,}"),
        _pair("sequences", f"{ledger['num_sequences']:,}"),
        _pair("tokens", f"{ledger['num_tokens']:,}"),
        _pair("size", f"{show_bytes(numbers['bytes'])} in {sizes}, {numbers['dtype']}"),
        _pair("vocabulary", f"{numbers['vocab_size']:,} tokens, ids 0 to {numbers['max_id']:,}"),
        _pair("special ids", _special_ids(numbers)),
        _pair("encoder", run.get("encoder", "unknown")),
    ]
    lines += _show_nonzero(ledger, _STORE_LEDGER)
    return lines


def _head_of_shards(numbers: dict[str, Any]) -> list[str]:
    ledger, rows = numbers["ledger"], numbers["rows_of_batch"]
    lines = [
        f"shards  {numbers['path']}  ({numbers['layout']})",
        _pair("batches", f"{ledger['num_batches']:,}"),
        _pair("rows of a batch", f"{rows['fewest']:,} to {rows['most']:,}"),
        _pair("sequences", f"{ledger['num_sequences']:,}"),
        _pair("tokens", f"{ledger['num_tokens']:,}"),
        _pair("padding", _padding(numbers)),
        _pair(
            "size",
            f"{show_bytes(numbers['bytes'])} in {count(numbers['num_shards'], 'shard')}, "
            f"{numbers['dtype']}",
        ),
        _pair("token store", numbers["tokens_path"]),
    ]
    if numbers["bucket_keys"] is not None:
        lines.append(_pair("bucket keys", _list_some(numbers["bucket_keys"])))
    lines += _show_nonzero(ledger, _SHARDS_LEDGER)
    for reason, num_dropped in ledger["num_dropped_sequences"].items():
        tokens = ledger["num_dropped_tokens"][reason]
        lines.append(_pair("dropped", f"{num_dropped:,} sequences, {tokens:,} tokens by {reason}"))
    return lines


def _padding(numbers: dict[str, Any]) -> str:
    if numbers["layout"] != "padded":
        return "none"
    side = f"on the {numbers['padding_side']}, id {numbers['pad_id']}"
    return f"{numbers['padding_ratio']:.2%} of all cells, {side}"


_SHARDS_LEDGER = {"num_filler_rows": "filler rows", "num_split_sequences": "split sequences"}
_STORE_LEDGER = {
    "num_empty_documents": "empty documents",
    "num_rejected": "rejected records",
    "num_dropped_documents": "dropped documents",
    "num_special_tokens_added": "special added",
    "num_truncated_tokens": "truncated tokens",
    "num_dropped_tokens": "dropped tokens",
    "num_special_tokens_in_text": "special in text",
}


def _show_nonzero(ledger: dict[str, int], names: dict[str, str]) -> list[str]:
    return [_pair(label, f"{ledger[name]:,}") for name, label in names.items() if ledger[name]]


def _show_lengths(lengths: dict[str, Any]) -> list[str]:
    if lengths["longest"] is None:
        return ["no sequences"]
    shares = "  ".join(f"p{share} {value:,}" for share, value in lengths["percentiles"].items())
    most = max(entry["num_sequences"] for entry in lengths["histogram"])
    lines = [
        f"lengths  {lengths['shortest']:,} to {lengths['longest']:,} tokens, "
        f"mean {lengths['mean']:,}",
        f"  {shares}",
        "",
    ]
    for entry in lengths["histogram"]:
        number = entry["num_sequences"]
        bar = "█" * round(BAR_WIDTH * number / most) or ("▏" if number else "")
        span = (
            f"{entry['from']:,}"
            if entry["from"] == entry["to"]
            else (f"{entry['from']:,} to {entry['to']:,}")
        )
        lines.append(f"  {span:>21} {number:>10,} {bar}".rstrip())
    return lines


def count(number: int, noun: str) -> str:
    """Put a number before its noun.

    >>> count(1, "shard"), count(2000, "batch")
    ('1 shard', '2,000 batches')
    """
    plural = f"{noun}es" if noun.endswith(("ch", "s")) else f"{noun}s"
    return f"{number:,} {noun if number == 1 else plural}"


def _pair(label: str, value: str) -> str:
    return f"  {label:<18} {value}"


def _special_ids(numbers: dict[str, Any]) -> str:
    roles = {role: numbers[f"{role}_id"] for role in ("pad", "bos", "eos", "unk")}
    return ", ".join(f"{role} {id_}" for role, id_ in roles.items() if id_ is not None) or "none"


def _list_some(values: list[int]) -> str:
    shown = " ".join(map(str, values[:MAX_LISTED]))
    hidden = len(values) - MAX_LISTED
    return f"{shown} and {hidden:,} more" if hidden > 0 else shown


def _quote(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)  # control characters would move the cursor


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


def show_bytes(count: int) -> str:
    """Give a size in a unit that is easily read."""
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} bytes"

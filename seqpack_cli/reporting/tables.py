"""Plain values -> lines for a terminal of 80 columns."""

from __future__ import annotations

from typing import Any

from seqpack_cli.batching.pack_options import MAX_COUNT
from seqpack_cli.errors import escape_controls
from seqpack_cli.reporting.staircase_lines import draw_packed, draw_padded, draw_varlen
from seqpack_cli.reporting.terminal import (
    WIDTH,
    cut,
    cut_front,
    list_some,
    pair,
    pair_of_path,
    pair_of_text,
    quote_text,
)
from seqpack_cli.reporting.token_lines import draw_tokens

Facts = list[tuple[str, str]]  # labels and values

BAR_WIDTH = 40
MAX_ROWS = 20
MAX_TEXT_LINES = 5
PATH_LABEL = "token store"  # of shards


def show_numbers(numbers: dict[str, Any]) -> list[str]:
    """Show the numbers of a token store or of shards."""
    facts = [
        pair_of_path(label, value) if label == PATH_LABEL else pair(label, value)
        for label, value in list_facts(numbers)
    ]
    return [_title(numbers), *facts, "", *_show_lengths(numbers["lengths"])]


def list_facts(numbers: dict[str, Any]) -> Facts:
    """Give the label and the value of all that is said of a token store or of shards."""
    if numbers["kind"] == "shards":
        return _list_facts_of_shards(numbers)
    return _list_facts_of_store(numbers)


def show_batch(batch: dict[str, Any]) -> list[str]:
    """Show one batch: its shape, a drawing of it, and the beginning of each row."""
    lines = [
        cut(f"batch {batch['batch']}  ({batch['shard']}, batch {batch['batch_in_shard']})", WIDTH),
        pair("rows", f"{batch['num_rows']:,}"),
        pair("longest", f"{batch['longest']:,}"),
        pair("tokens", f"{batch['num_tokens']:,}"),
        pair("padding cells", f"{batch['num_padding_cells']:,}"),
    ]
    for name in ("num_filler_rows", "bucket_key", "width"):
        if batch.get(name):
            lines.append(pair(name.removeprefix("num_").replace("_", " "), f"{batch[name]:,}"))
    if "cu_seqlens" in batch:
        lines.append(pair("cu_seqlens", list_some(batch["cu_seqlens"])))
    lines += ["", *_draw_batch(batch), ""]
    lines.append(f"{'row':>5} {'sequence':>9} {'length':>8}  text")
    for row, entry in enumerate(batch["rows"][:MAX_ROWS]):
        head = f"{row:>5} {entry['original_index']:>9,} {entry['length']:>8,}  "
        if entry.get("piece_start"):
            head += f"(from token {entry['piece_start']:,}) "
        lines.append(cut(head + quote_text(entry["text"]), WIDTH))
    hidden = len(batch["rows"]) - MAX_ROWS
    return [*lines, f"      and {hidden:,} more rows (all with --json)"] if hidden > 0 else lines


def show_sequence(sequence: dict[str, Any]) -> list[str]:
    """Show one sequence: where it came from, its tokens with their ids, and its text."""
    lines = [f"sequence {sequence['sequence']:,}"]
    origin = sequence["origin"]
    if origin is None:
        lines.append(pair("source", "unknown: the token store is no longer there"))
    else:
        record = f", record {origin['record']:,}"
        lines.append(pair_of_path("source", origin["source"], record))
        lines.append(pair("document", f"{origin['document']:,}"))
        if origin["num_pieces"] > 1:
            lines.append(pair("piece", f"{origin['piece'] + 1:,} of {origin['num_pieces']:,}"))
    if "shard" in sequence:
        place = f", batch {sequence['batch']:,}, row {sequence['row']:,}"
        lines.append(pair_of_path("shard", sequence["shard"], place))
        if sequence["num_rows"] > 1:
            lines.append(pair("rows", f"{sequence['num_rows']:,}, this is that of its first piece"))
    return [
        *lines,
        pair("length", f"{sequence['length']:,} tokens"),
        "",
        *draw_tokens(sequence["tokens"], num_tokens=sequence["length"]),
        "",
        *pair_of_text("text", sequence["text"], max_lines=MAX_TEXT_LINES),
    ]


def _draw_batch(batch: dict[str, Any]) -> list[str]:
    lengths = [row["length"] for row in batch["rows"]] + [0] * batch["num_filler_rows"]
    if batch["layout"] == "packed":
        return draw_packed(lengths, batch["batch_sizes"])
    if batch["layout"] == "padded":
        return draw_padded(lengths, batch["width"], padding_side=batch["padding_side"])
    capacity = batch["max_tokens"]
    is_one = capacity is not None and batch["num_tokens"] <= capacity <= MAX_COUNT
    return draw_varlen(lengths, capacity if is_one else batch["num_tokens"])


def _title(numbers: dict[str, Any]) -> str:
    layout = f"  ({numbers['layout']})" if numbers["kind"] == "shards" else ""
    room = WIDTH - len(f"{numbers['kind']}  {layout}")
    return f"{numbers['kind']}  {cut_front(escape_controls(numbers['path']), room)}{layout}"


def _list_facts_of_store(numbers: dict[str, Any]) -> Facts:
    ledger = numbers["ledger"]
    run = numbers["run"] or {}
    sizes = f"{count(numbers['num_parts'], 'part')} of {count(numbers['num_sources'], 'source')}"
    return [
        ("documents", f"{ledger['num_documents']:,}"),
        ("sequences", f"{ledger['num_sequences']:,}"),
        ("tokens", f"{ledger['num_tokens']:,}"),
        ("size", f"{show_bytes(numbers['bytes'])} in {sizes}, {numbers['dtype']}"),
        ("vocabulary", f"{numbers['vocab_size']:,} tokens, ids 0 to {numbers['max_id']:,}"),
        ("special ids", _special_ids(numbers)),
        ("encoder", str(run.get("encoder", "unknown"))),
        *_list_nonzero(ledger, _STORE_LEDGER),
    ]


def _list_facts_of_shards(numbers: dict[str, Any]) -> Facts:
    ledger, rows = numbers["ledger"], numbers["rows_of_batch"]
    size = f"{show_bytes(numbers['bytes'])} in {count(numbers['num_shards'], 'shard')}"
    facts = [
        ("batches", f"{ledger['num_batches']:,}"),
        ("rows of a batch", f"{rows['fewest']:,} to {rows['most']:,}"),
        ("sequences", f"{ledger['num_sequences']:,}"),
        ("tokens", f"{ledger['num_tokens']:,}"),
        ("padding", _padding(numbers)),
        ("size", f"{size}, {numbers['dtype']}"),
        (PATH_LABEL, numbers["tokens_path"]),
    ]
    if numbers["bucket_keys"] is not None:
        facts.append(("bucket keys", list_some(numbers["bucket_keys"])))
    facts += _list_nonzero(ledger, _SHARDS_LEDGER)
    for reason, num_dropped in ledger["num_dropped_sequences"].items():
        tokens = ledger["num_dropped_tokens"][reason]
        facts.append(("dropped", f"{num_dropped:,} sequences, {tokens:,} tokens by {reason}"))
    return facts


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


def _list_nonzero(ledger: dict[str, int], names: dict[str, str]) -> Facts:
    return [(label, f"{ledger[name]:,}") for name, label in names.items() if ledger[name]]


def _show_lengths(lengths: dict[str, Any]) -> list[str]:
    if lengths["longest"] is None:
        return ["no sequences"]
    shares = [f"p{share} {value:,}" for share, value in lengths["percentiles"].items()]
    span = f"{lengths['shortest']:,} to {lengths['longest']:,} tokens"
    return [
        cut(f"lengths  {span}, mean {lengths['mean']:,}", WIDTH),
        *_show_shares(shares),
        "",
        *_show_histogram(lengths["histogram"]),
    ]


def _show_shares(shares: list[str]) -> list[str]:
    """Show percentiles two blanks apart, in as many lines as they need."""
    lines = [""]
    for share in shares:
        if len(lines[-1]) + 2 + len(share) > WIDTH:
            lines.append("")
        lines[-1] += f"  {share}"
    return lines


def _show_histogram(bins: list[dict[str, int]]) -> list[str]:
    most = max(entry["num_sequences"] for entry in bins)
    spans = [
        f"{entry['from']:,}"
        if entry["from"] == entry["to"]
        else f"{entry['from']:,} to {entry['to']:,}"
        for entry in bins
    ]
    span_width = max(21, *map(len, spans))
    number_width = max(10, len(f"{most:,}"))
    bar_width = min(BAR_WIDTH, WIDTH - 4 - span_width - number_width)
    lines = []
    for span, entry in zip(spans, bins, strict=True):
        number = entry["num_sequences"]
        bar = "█" * round(bar_width * number / most) or ("▏" if number else "")
        line = f"  {span:>{span_width}} {number:>{number_width},} {bar}"
        lines.append(cut(line.rstrip(), WIDTH))
    return lines


def count(number: int, noun: str) -> str:
    """Put a number before its noun.

    >>> count(1, "shard"), count(2000, "batch")
    ('1 shard', '2,000 batches')
    """
    plural = f"{noun}es" if noun.endswith(("ch", "s")) else f"{noun}s"
    return f"{number:,} {noun if number == 1 else plural}"


def _special_ids(numbers: dict[str, Any]) -> str:
    roles = {role: numbers[f"{role}_id"] for role in ("pad", "bos", "eos", "unk")}
    return ", ".join(f"{role} {id_}" for role, id_ in roles.items() if id_ is not None) or "none"


def show_bytes(count: int) -> str:
    """Give a size in a unit that is easily read."""
    for unit, size in (("TB", 10**12), ("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= 0.99995 * size:  # less would be rounded to 999.9 of the unit below
            return f"{count / size:.1f} {unit}"
    return f"{count} bytes"

"""The lines that `tokenize` and `pack` print when they are done."""

from __future__ import annotations

from typing import Any

from seqpack_cli.batching.options import LAYOUTS, SIDES
from seqpack_cli.errors import escape_controls, join_items
from seqpack_cli.files.places import Place
from seqpack_cli.reporting.batch_facts import count_batches, spell_batches, spell_keys
from seqpack_cli.reporting.facts import list_nonzero
from seqpack_cli.reporting.left_out import PAIR, list_not_packed, list_repeated
from seqpack_cli.reporting.pair_counts import add_up_sides
from seqpack_cli.reporting.selection_counts import describe_stores, selects_passes
from seqpack_cli.reporting.terminal.selection_lines import draw_splits, show_stores
from seqpack_cli.reporting.wording import WIDTH, count, wrap
from seqpack_cli.shards.manifest import view_sides
from seqpack_cli.tokens.columns import TARGETS

OF_STORE = {
    "num_empty_documents": "empty documents, without a sequence",
    "num_rejected": "records skipped, listed in rejects.jsonl",
    "num_dropped_documents": "documents dropped as too long",
    "num_empty_sequences": "empty sequences, left out",
    "num_padding_tokens": "tokens of padding, left out",
    "num_truncated_tokens": "tokens cut off",
    "num_straddling_tokens": "tokens of both a prompt and a target, which do not count",
    "num_words_without_token": "words without a token, whose tags are lost",
    "num_special_tokens_in_text": (
        "special tokens spelled out in the text, listed in special_tokens.jsonl"
    ),
}
OF_SHARDS = {
    "num_filler_rows": "filler rows that complete last batches",
    "num_split_sequences": "sequences split into pieces",
}


def summarize_tokenize(output: Place, manifest: dict[str, Any], *, was_complete: bool) -> list[str]:
    """Return what a token store holds, and what of the input it leaves out."""
    ledger = manifest["ledger"]
    lines = [
        _done(output, was_complete=was_complete),
        f"  {count(ledger['num_documents'], 'document')} -> "
        f"{count(ledger['num_sequences'], 'sequence')}, {count(ledger['num_tokens'], 'token')} "
        f"({manifest['dtype']}, {count(len(manifest['parts']), 'part')})",
    ]
    lines += _tell_targets(manifest) + _tell_columns(manifest)
    spelled = OF_STORE
    if manifest["options"].get("allow_special_tokens"):
        name = "num_special_tokens_in_text"
        spelled = {**OF_STORE, name: f"{OF_STORE[name]}, and encoded as their ids"}
    return lines + _tell_nonzero(ledger, spelled)


def summarize_pack(output: Place, manifest: dict[str, Any], *, was_complete: bool) -> list[str]:
    """Return what shards hold, and what of the stores they leave out; or what each split holds.

    Args:
        manifest: of shards, or what `describe_splits` returns.
    """
    if "splits" in manifest:
        return [_done(output, was_complete=was_complete), *draw_splits(manifest)]
    if manifest["decoder"] is not None:
        return [_done(output, was_complete=was_complete), *_tell_pairs(manifest)]
    ledger = manifest["ledger"]
    lines = [
        _done(output, was_complete=was_complete),
        f"  {count(ledger['num_sequences'], 'sequence')}, "
        f"{count(ledger['num_tokens'], 'token')} -> "
        f"{count_batches(ledger['num_batches'], manifest['layout'])}, "
        f"{count(len(manifest['shards']), 'shard')}",
        *_tell_room(manifest),
    ]
    lines += _tell_targets(manifest)
    if manifest["bucket_keys"] is not None:
        lines.append(f"  buckets: {join_items(manifest['bucket_keys'])}")
    lines += _tell_columns(manifest) + _tell_nonzero(ledger, OF_SHARDS)
    lines += [f"  {words}" for _, words in list_not_packed(ledger, manifest["options"])]
    for label, words in list_repeated(ledger, manifest["options"]):
        lines.append(f"  {label} {words}")
    stores = describe_stores(manifest)
    return lines + show_stores(stores) if selects_passes(stores) else lines


def _tell_pairs(manifest: dict[str, Any]) -> list[str]:
    """Return the lines about shards of pairs: what each side holds, then both together."""
    sides, options = view_sides(manifest), manifest["options"]
    both = add_up_sides([side["ledger"] for side in sides])
    lines = [
        f"  {count(both['num_pairs'], 'pair')}, {count(both['num_tokens'], 'token')} -> "
        f"{count_batches(manifest['ledger']['num_batches'], manifest['layout'])}, "
        f"{count(len(manifest['shards']), 'shard')}"
    ]
    for name, side in zip(SIDES, sides, strict=True):
        ledger = side["ledger"]
        lines.append(f"  {name}: {count(ledger['num_tokens'], 'token')}, {_tell_padding(ledger)}")
        lines += [f"  {line}" for line in (*_tell_targets(side), *_tell_columns(side))]
    lines.append(f"  both sides: {_tell_padding(both)}")
    if manifest["bucket_keys"] is not None:
        lines.append(f"  buckets: {join_items(spell_keys(manifest['bucket_keys']))}")
    lines += _tell_nonzero(manifest["ledger"], OF_SHARDS)
    lines += [f"  {words}" for _, words in list_not_packed(both, options, noun=PAIR)]
    lines += [f"  {label} {it}" for label, it in list_repeated(both, options, noun=PAIR)]
    for name, side in zip(SIDES, sides, strict=True):
        stores = describe_stores(side)
        if selects_passes(stores):
            lines += [f"  stores of the {name}", *show_stores(stores)]
    return lines


def _tell_padding(ledger: dict[str, Any]) -> str:
    num_cells = ledger["num_tokens"] + ledger["num_padding_cells"]
    return f"{ledger['num_padding_cells'] / num_cells:.2%} of the cells are padding"


def _tell_room(manifest: dict[str, Any]) -> list[str]:
    """Return the lines about the shape of batches, their padding, and the fewest rows possible."""
    ledger, rules = manifest["ledger"], LAYOUTS[manifest["layout"]]
    num_cells = ledger["num_tokens"] + ledger["num_padding_cells"]
    padding = _tell_padding(ledger)
    if not rules.shares_rows:
        return [f"  {padding}"]
    line = f"  each batch: {spell_batches(manifest)}; {padding}"
    if rules.carries_state:
        return [line + (", in the last batch" if ledger["num_padding_cells"] else "")]
    num_rows, capacity = ledger["num_batches"], manifest["options"]["max_tokens"]
    if manifest["options"]["batch_size"] is not None:
        num_rows = num_cells // capacity
    bound = -(-ledger["num_tokens"] // capacity)
    above = f"{num_rows / bound - 1:.2%} above the lower bound {bound:,}: "
    above += f"all tokens / {capacity:,}, rounded up"
    if num_cells == ledger["num_tokens"]:
        return [f"  {above}"]
    return [line, f"  {count(num_rows, 'row')}, {above}"]


def _done(output: Place, *, was_complete: bool) -> str:
    return f"{output}: already complete" if was_complete else f"{output}: complete"


def _tell_targets(manifest: dict[str, Any]) -> list[str]:
    """Return the line with the share of targets, if there is a column of them."""
    if all(column["name"] != TARGETS for column in manifest["columns"]):
        return []
    num_targets = manifest["ledger"]["num_target_tokens"]
    if not num_targets:
        return ["  no token is a target: a loss has nothing to learn from; see seqpack inspect"]
    return [f"  {num_targets / manifest['ledger']['num_tokens']:.2%} of the tokens are targets"]


def _tell_columns(manifest: dict[str, Any]) -> list[str]:
    """Return the line that names the columns with their kinds, of many only the first."""
    described = []
    for column in manifest["columns"]:
        names = column.get("class_names")
        kind = (
            column["kind"] if names is None else f"{column['kind']}, {count(len(names), 'class')}"
        )
        described.append(f"{column['name']} ({kind})")
    if not described:
        return []
    first, *others = wrap(f"columns: {escape_controls(join_items(described))}", WIDTH - 4)
    return [f"  {first}", *(f"    {line}" for line in others)]


def _tell_nonzero(ledger: dict[str, int], names: dict[str, str]) -> list[str]:
    return [f"  {text}: {number}" for text, number in list_nonzero(ledger, names)]

"""The numbers of a token store or of shards as labels and values, for terminal and page."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from seqpack_cli.reporting.batch_facts import list_batches, spell_keys, spell_padding
from seqpack_cli.reporting.column_facts import find_counts
from seqpack_cli.reporting.left_out import count_both, list_not_packed, list_repeated
from seqpack_cli.reporting.selection_counts import selects_passes
from seqpack_cli.reporting.wording import count, list_some, show_bytes, show_share, show_span

Facts = list[tuple[str, str]]  # labels and values
PATH_LABEL = "token store"  # of shards
NOT_PACKED = "not packed"


def list_facts(numbers: dict[str, Any]) -> Facts:
    """Return the labels and values that describe a token store, or shards without pairs."""
    if numbers["kind"] == "shards":
        return _list_facts_of_shards(numbers)
    return _list_facts_of_store(numbers)


def list_length_facts(numbers: dict[str, Any]) -> Facts:
    """Return the labels and values that describe lengths."""
    lengths = numbers["lengths"]
    if lengths["longest"] is None:
        return []
    label = "lengths of pieces" if numbers["ledger"].get("num_split_sequences") else "lengths"
    span = show_span(lengths["shortest"], lengths["longest"])
    shares = ", ".join(f"p{share} {value:,}" for share, value in lengths["percentiles"].items())
    return [(label, f"{span} tokens, mean {lengths['mean']:,}"), ("percentiles", shares)]


def list_run_facts(run: dict[str, Any] | None) -> Facts:
    """Return command, date, duration and versions from `run.json`, as far as it has them."""
    run = run or {}
    versions, seconds = run.get("versions"), run.get("seconds")
    named = versions.items() if isinstance(versions, dict) else ()
    facts = {
        "command": run.get("command"),
        "date": _spell_date(run.get("date")),
        "duration": f"{seconds:,.1f} s" if type(seconds) is float else None,
        "versions": ", ".join(f"{name} {version}" for name, version in named),
    }
    return [(name, value) for name, value in facts.items() if isinstance(value, str) and value]


def _spell_date(date: object) -> str | None:
    """Return a date of `run.json` as people read it, None if it is not one."""
    try:
        return f"{datetime.fromisoformat(str(date)).astimezone(UTC):%Y-%m-%d %H:%M UTC}"
    except (ValueError, OverflowError):
        return None


def list_nonzero(ledger: dict[str, int], labels: dict[str, str]) -> Facts:
    """Return the counts of a ledger that are not 0, with their labels."""
    return [(label, f"{ledger[name]:,}") for name, label in labels.items() if ledger[name]]


def list_target_facts(numbers: dict[str, Any]) -> Facts:
    """Return the number of targets and what made them; nothing if there is no such column."""
    found = find_counts(numbers["columns"])
    if found is None:
        return []
    words = f"{count(found['num_targets'], 'token')}, {show_share(found['share'])}"
    if found["num_rows_without"]:
        words += f"; {found['num_rows_without']:,} of {count(found['num_rows'], found['row'])}"
        words += " without one"
    return [("targets", words), *_list_target_options(numbers["target_options"] or [])]


def spell_warning(warning: dict[str, Any]) -> tuple[str, str]:
    """Return what a warning of `describe` says, and what to do."""
    where = f"{warning['split']}: " if "split" in warning else ""
    where += f"{warning['side']}: " if "side" in warning else ""
    return f"{where}{warning['message']}", warning["hint"]


def _list_target_options(options: list[dict[str, Any]]) -> Facts:
    """Return the options of `tokenize` that made the targets, of several stores if they agree."""
    if any(each != options[0] for each in options):
        return [("targets from", "stores with different options")]
    return [
        (
            "chat template" if name.startswith("chat_template") else name.replace("_", " "),
            str(value),
        )
        for each in options[:1]
        for name, value in each.items()
    ]


def list_store_facts(stores: list[dict[str, Any]]) -> Facts:
    """Return the store of shards; of several stores, or other than one pass, also the counts."""
    if not selects_passes(stores):
        return [(PATH_LABEL, stores[0]["path"])]
    return [
        (
            PATH_LABEL,
            f"{entry['path']}: {count_passes(entry['passes'])}, "
            f"{count_both(entry['num_packed_sequences'], entry['num_packed_tokens'])} "
            f"({show_share(entry['packed_share'])} of all tokens)",
        )
        for entry in stores
    ]


def count_passes(passes: str) -> str:
    """Return how often a store was passed.

    >>> count_passes("1"), count_passes("0.5")
    ('1 pass', '0.5 passes')
    """
    return f"{passes} {'pass' if passes == '1' else 'passes'}"


def _list_facts_of_store(numbers: dict[str, Any]) -> Facts:
    ledger = numbers["ledger"]
    run = numbers["run"] or {}
    sizes = f"{count(numbers['num_parts'], 'part')} of {count(numbers['num_sources'], 'source')}"
    return [
        ("documents", f"{ledger['num_documents']:,}"),
        ("duplicates", _duplicates(numbers["duplicates"])),
        ("sequences", f"{ledger['num_sequences']:,}"),
        ("tokens", f"{ledger['num_tokens']:,}"),
        *list_target_facts(numbers),
        ("size", f"{show_bytes(numbers['bytes'])} in {sizes}, {numbers['dtype']}"),
        ("vocabulary", spell_vocabulary(numbers)),
        ("special ids", _special_ids(numbers)),
        *tell_tokenizer(numbers),
        _tell_maker(numbers["made_by"], run),
        *list_nonzero(ledger, _STORE_LEDGER),
        *(
            ("special tokens", f"{ledger[name]:,} {what}")
            for name, what in _SPECIAL_TOKENS.items()
            if ledger[name]
        ),
    ]


def _list_facts_of_shards(numbers: dict[str, Any]) -> Facts:
    ledger = numbers["ledger"]
    size = f"{show_bytes(numbers['bytes'])} in {count(numbers['num_shards'], 'shard')}"
    facts: Facts = [
        *list_batches(numbers),
        ("sequences", f"{ledger['num_sequences']:,}"),
        ("tokens", f"{ledger['num_tokens']:,}"),
        *list_target_facts(numbers),
        ("padding", spell_padding(numbers)),
        ("size", f"{size}, {numbers['dtype']}"),
        *tell_tokenizer(numbers),
        *list_store_facts(numbers["stores"]),
    ]
    if numbers["bucket_keys"] is not None:
        facts.append(("bucket keys", list_some(spell_keys(numbers["bucket_keys"]))))
    facts += list_nonzero(ledger, SHARDS_LEDGER)
    facts += list_repeated(ledger, numbers["options"])
    left_out = list_not_packed(ledger, numbers["options"])
    return facts + [(NOT_PACKED, words) for _, words in left_out]


def spell_vocabulary(numbers: dict[str, Any]) -> str:
    ids = f"{numbers['vocab_size']:,} tokens, ids 0 to {numbers['max_id']:,}"
    return f"{ids}, {numbers['dtype']}" if numbers["kind"] == "shards" else ids


def tell_tokenizer(numbers: dict[str, Any]) -> Facts:
    return [("tokenizer", "none: ids are not decoded")] * (numbers["tokenizer_blake3"] is None)


def _tell_maker(made_by: str, run: dict[str, Any]) -> tuple[str, str]:
    if made_by == "import":
        return "made by", made_by
    return "encoder", str(run.get("encoder", "unknown"))


def _duplicates(found: dict[str, int]) -> str:
    number, num_documents = found["num_duplicate_documents"], found["num_documents_with_tokens"]
    return f"{number:,} of {num_documents:,} documents repeat an earlier one" if number else "none"


SHARDS_LEDGER = {"num_filler_rows": "filler rows", "num_split_sequences": "split sequences"}
_SPECIAL_TOKENS = {
    "num_special_tokens_added": "added",
    "num_special_tokens_in_text": "spelled out in the text (see --vocabulary)",
}
_STORE_LEDGER = {
    "num_empty_documents": "empty documents",
    "num_rejected": "rejected records",
    "num_dropped_documents": "dropped documents",
    "num_truncated_tokens": "truncated tokens",
    "num_words_without_token": "words with a tag and no token",
    "num_dropped_tokens": "dropped tokens",
    "num_straddling_tokens": "straddling tokens",
    "num_overlap_tokens": "overlap tokens",
    "num_padding_tokens": "padding left out",
    "num_empty_sequences": "empty sequences",
}


def _special_ids(numbers: dict[str, Any]) -> str:
    roles = {role: numbers[f"{role}_id"] for role in ("pad", "bos", "eos", "unk")}
    return ", ".join(f"{role} {id_}" for role, id_ in roles.items() if id_ is not None) or "none"

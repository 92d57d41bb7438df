"""The command `pack` as a function: plan the batches of opened stores, write the shards, tell.

The plan follows from the lengths and options alone, so shards are independent tasks: each maps the
stores, finds and gathers the rows of its batches, and publishes one file. With `--split` there is a
plan and a folder for each split, but one run, whose tasks are the shards of all splits. All is
counted and planned before anything is written, so that an empty split, or a sequence that does not
fit, stops at once. A manifest is written once all of its shards are: the ledger accounts for every
sequence, and counts the dropped ones by reason.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np

from seqpack_cli.batching.options import (
    PLAN_VERSION,
    PackOptions,
    ResolvedOptions,
    parse_numbers,
    spell_number,
)
from seqpack_cli.batching.plan import Plan, needs_array
from seqpack_cli.errors import DataError, OptionError, quote
from seqpack_cli.files.manifest import FORMAT_OF_SHARDS, FORMAT_OF_SPLITS, has_tokenizer
from seqpack_cli.files.objects import AnyPath
from seqpack_cli.files.places import Place, parse_place, spell_place
from seqpack_cli.runs.options import spell_command, takes_options
from seqpack_cli.runs.run_folder import RunFolder, RunOutput, hold_folder
from seqpack_cli.runs.workers import Executor, Progress, Workers, count_cores, open_workers
from seqpack_cli.shards.alignment import Alignment, align, describe_missing_ends
from seqpack_cli.shards.manifest import (
    APART,
    COUNTS,
    FORMAT_VERSION,
    OF_STORES,
    PREFIX,
    SHARD_FIELDS,
    add_up_stores,
    record_options,
    view_sides,
)
from seqpack_cli.shards.pack_plan import (
    check_memory,
    choose_pad_id,
    count_bytes,
    cut_shards,
    describe_pad_id,
    plan_store,
)
from seqpack_cli.shards.pack_shard import (
    SetSetup,
    ShardTask,
    SourceSetup,
    count_store,
    make_shard,
    open_source,
)
from seqpack_cli.shards.selection import (
    PartSplits,
    Selection,
    list_own_options,
    make_splitter,
    name_by_position,
)
from seqpack_cli.shards.shard_set import open_shards
from seqpack_cli.shards.split_set import FIELDS_OF_SIDES, open_splits
from seqpack_cli.shards.split_set import FORMAT_VERSION as SPLITS_FORMAT_VERSION
from seqpack_cli.tokens.store import AnyPaths, TokenStore, name_stores, open_stores, parse_places

MAX_SHARE_ERROR = 0.01  # of all tokens; a store of few documents may miss its share by more
TOKENIZERS = ("tokenizer.json", "decoder.tokenizer.json")


@takes_options(options=PackOptions, executor=Executor)
def pack(
    stores: AnyPaths,
    output: AnyPath,
    options: PackOptions | None = None,
    *,
    decoder: AnyPaths | None = None,
    executor: Executor | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> tuple[dict[str, Any], bool]:
    """Pack a token store into shards, as `seqpack pack` does.

    Args:
        stores: the token store's folder, or those of several, which are packed as one.
        output: the shards' folder; an interrupted run there is continued.
        decoder: the token store of the other side of pairs, or those of several, one for each of
            stores; None packs single sequences.
        executor: where the work is done, and by how many workers; None is this machine, with one
            process per core.
        overwrite: replace earlier shards in the folder.
        progress: what to call with tokens packed and notices.

    Returns:
        The manifest of the shards or splits, and whether they were already complete.

    Raises:
        OptionError: options conflict, or a sequence does not fit and overflow is "error".
        DataError: no batch is left, or a split is empty.
        FolderError: the store is damaged, the folder holds something else, or another run is
            writing there.
        MachineError: the disk, the memory or a worker process failed.
    """
    started = time.monotonic()
    options = options or PackOptions()
    places, output = parse_places(stores), parse_place(output)
    others = [] if decoder is None else parse_places(decoder)
    if decoder is not None and not others:
        raise OptionError("decoder: no stores", hint="pass one for each store, or None")
    command = None  # only the library can select a split
    if options.split_name is None:
        command = spell_command("pack", places, output, options, decoder=others)
    resolved = options.resolve(pairs=bool(others))
    with open_workers(executor, progress, (*places, *others, output)) as workers:
        # Whether this process reads all lengths, not the workers.
        is_here = workers.are_local or bool(others) or needs_array(resolved) or resolved.has_passes
        store, alignment, resolved = _open(places, others, output, resolved, is_here=is_here)
        out = RunOutput(output, options, overwrite, command)
        has_splits = resolved.split is not None and resolved.split_name is None
        # The split of each sequence is kept in 2 bytes.
        find = functools.cache(make_splitter(store, resolved)) if has_splits else None
        entries = [] if find is None else describe_splits(store, resolved, find)

        def plan_set(name: str | None) -> _Set:
            own = resolved if name is None else replace(resolved, split_name=name)
            source = Selection(store, own, alignment=alignment, find_split=find)
            head = _make_head(source)  # checks the pad id before the work of planning
            plan = plan_store(source, own, None if is_here else count_store(source, workers))
            sizes = count_bytes(plan.table, own, source.sides)
            check_memory(plan.table, sizes)
            return _Set(name, source, plan, sizes, head)

        try:
            # The smallest split first: it may be too small for the options.
            by_size = sorted(entries, key=lambda entry: entry["num_tokens"])
            sets = [plan_set(entry["name"]) for entry in by_size] or [plan_set(None)]
            plan = _describe_splits_run(sets[0].source) if has_splits else sets[0].head
            return _run(plan, sets, entries, out, workers, started)
        finally:
            open_source.cache_clear()  # else stores stay mapped where this process does the work


def _open(
    places: Sequence[Place],
    others: Sequence[Place],
    output: Place,
    options: ResolvedOptions,
    *,
    is_here: bool,
) -> tuple[TokenStore, Alignment | None, ResolvedOptions]:
    """Open the stores of a run; return the options with stores named by position.

    Args:
        others: of the decoder's side, if these are pairs.
        is_here: check the indices now, not in the workers.
    """
    own = list_own_options(options, 2 if others else 1)
    store = open_stores(places, check_indices=is_here, without=own[0].drop_column)
    for place in (*places, *others):
        if output.resolve() == place.resolve():
            raise OptionError(f"{output}: is the token store itself", hint="choose another -o")
    options = name_by_position(options, name_stores(places))
    if not others:
        return store, None, options
    decoder = open_stores(others, without=own[1].drop_column, prefix=PREFIX)
    for name in (*store.columns, options.store_column or ""):
        if name.startswith(PREFIX):
            raise OptionError(
                f"column {quote(name)} is named like those of the decoder's side",
                hint="rename the field, or choose another --store-column",
            )
    return store, align(store, decoder), options


# The run


@dataclass(frozen=True, eq=False)
class _Set:
    """A shard set to pack: that of a run, or of one of its splits.

    Args:
        name: of the split, None without splits.
        sizes: the bytes of a batch, for each row of the plan's table.
        head: the manifest's fields that are known before packing.
    """

    name: str | None
    source: Selection
    plan: Plan
    sizes: np.ndarray
    head: dict[str, Any]


def _run(
    plan: dict[str, Any],
    sets: Sequence[_Set],
    entries: Sequence[dict[str, Any]],
    output: RunOutput,
    workers: Workers,
    started: float,
) -> tuple[dict[str, Any], bool]:
    """Write the shards of one or more sets, each manifest after its last shard.

    Args:
        plan: of the run, whose values its manifest has.
        sets: one, or that of each split.
        entries: of the splits in the manifest, without the digests of theirs.
    """
    names = [each.name for each in sets if each.name is not None]
    first, notice = sets[0].source, workers.progress.on_notice
    with hold_folder(output, names) as run:
        run.begin(plan)
        if run.manifest is not None:
            run.check_whole(open_splits if names else open_shards)
            return run.manifest, True
        notes = [describe_pad_id(side, first.options) for side in first.sides]
        notes += [_describe_small(entry, first.options) for entry in entries]
        notes += map(describe_missing_ends, first.sides[1:])
        for note in filter(None, dict.fromkeys(notes)):  # both sides of pairs may have the same
            notice(note)
        for each in sets:
            for side, name in zip(each.source.sides, TOKENIZERS, strict=False):
                if has_tokenizer(side.manifest):
                    run.write_tokenizer(side.read_tokenizer_json(), name, split=each.name)

        def record(manifests: Iterable[dict[str, Any]], split: str | None) -> None:
            seconds = time.monotonic() - started
            sides = [side for manifest in manifests for side in view_sides(manifest)]
            num_workers = workers.executor.num_workers
            done = {
                "executor": workers.executor.name,
                "num_workers": num_workers or (count_cores() if workers.are_local else None),
                "seconds": round(seconds, 3),
                "tokens_per_second": round(
                    sum(side["ledger"]["num_tokens"] for side in sides) / seconds
                ),
            }
            run.write_record(done, {"numpy": np.__version__}, split=split)

        manifests = dict[str | None, dict[str, Any]]()
        for each, receipts in _make_shards(run, sets, workers):
            folder = run.find_folder(each.name)
            manifests[each.name] = _make_manifest(each, folder, receipts)
            record([manifests[each.name]], each.name)
            finish = functools.partial(run.finish_split, each.name) if names else run.finish
            finish(manifests[each.name], receipts)
        if names:
            for entry in entries:
                entry["blake3"] = open_shards(run.find_folder(entry["name"])).folder.digest
            both = zip(FIELDS_OF_SIDES, first.sides, strict=False)
            named = {field: describe_stores(side, folder=output.folder) for field, side in both}
            record(manifests.values(), None)
            manifests[None] = {**plan, **named, "splits": list(entries)}
            run.finish(manifests[None], [])
    for each in sets:
        _note_results(each, manifests[each.name], workers)
    return manifests[None], False


def _make_shards(
    run: RunFolder, sets: Sequence[_Set], workers: Workers
) -> Iterator[tuple[_Set, list[Any]]]:
    """Make the shards that are not finished yet; yield each set with all of its receipts."""
    missing, setups = list[ShardTask](), dict[str | None, SetSetup]()
    receipts, num_left = dict[str | None, list[Any]](), dict[str | None, int]()
    for each in sets:
        cuts = cut_shards(each.plan.table, each.sizes, each.source.options.shard_bytes)
        tasks = [ShardTask(each.name, number, it) for number, it in enumerate(each.plan.cut(cuts))]
        files = {task.receipt_name: [task.file_name] for task in tasks}
        found = run.read_receipts(files, SHARD_FIELDS, each.name)
        left = [task for task in tasks if found[task.number] is None]
        if len(left) < len(tasks):
            place = "" if each.name is None else f"split {quote(each.name)}: "
            workers.progress.on_notice(
                f"{place}{len(tasks) - len(left)} of {len(tasks)} shards were finished before"
            )
        missing += left
        receipts[each.name], num_left[each.name] = [*found], len(left)
        opened = SourceSetup.of(each.source)
        setups[each.name] = SetSetup(run.find_folder(each.name), opened, each.head)
        if not left:
            yield each, receipts[each.name]
    set_of = {each.name: each for each in sets}
    # Splits that fit into one file together are not worth a process each.
    num_bytes = sum(each.plan.table.add_up(each.sizes) for each in sets)
    num_files = -(-num_bytes // sets[0].source.options.shard_bytes) if len(sets) > 1 else None
    make = functools.partial(make_shard, setups)
    for (name, number), receipt in workers.run(make, missing, max_processes=num_files):
        receipts[name][number] = receipt
        num_left[name] -= 1
        if not num_left[name]:
            yield set_of[name], receipts[name]


# Manifests


def _make_head(source: Selection) -> dict[str, Any]:
    """Return the manifest's fields that are known before packing; a continued run must match."""
    options = source.options
    own, *others = (
        {
            "dtype": store.dtype,
            "pad_id": choose_pad_id(store, options),
            "tokenizer_blake3": store.manifest["tokenizer_blake3"],
            "stores": describe_stores(store, source.passes),
            "columns": [column.describe() for column in store.columns.values()],
        }
        for store in source.sides
    )
    return {
        "format": FORMAT_OF_SHARDS,
        "format_version": FORMAT_VERSION,
        "plan_version": PLAN_VERSION,
        "layout": options.layout,
        "padding_side": options.padding_side,
        **own,
        "options": record_options(options),
        "decoder": others[0] if others else None,
    }


def describe_stores(
    store: TokenStore, passes: Sequence[Fraction] | None = None, folder: Place | None = None
) -> list[dict[str, Any]]:
    """Return the entries of the stores of a side.

    Args:
        passes: of each store; None leaves them out.
        folder: that has the manifest; None leaves out the paths.
    """
    return [
        {
            **({} if folder is None else {"path": spell_place(each.path, folder)}),
            "blake3": each.digest,
            **({} if passes is None else {"passes": spell_number(passes[each.number])}),
            "num_sequences": each.num_sequences,
            "num_tokens": each.num_tokens,
        }
        for each in store.folders
    ]


def _make_manifest(packed: _Set, folder: Place, receipts: list[dict[str, Any]]) -> dict[str, Any]:
    """Add up the shards' receipts into the manifest."""
    head = packed.head
    manifest = {
        **head,
        **_finish_side(packed, 0, folder, receipts),
        "bucket_keys": packed.plan.bucket_keys,
        "shards": receipts,
    }
    if head["decoder"] is not None:
        of_side = [receipt["decoder"] for receipt in receipts]
        manifest["decoder"] = {**head["decoder"], **_finish_side(packed, 1, folder, of_side)}
    return manifest


def _finish_side(
    packed: _Set, side: int, folder: Place, receipts: list[dict[str, Any]]
) -> dict[str, Any]:
    """Return the fields of one side that are known once its shards are made."""
    store = packed.source.sides[side]
    ledger: dict[str, Any] = {name: sum(receipt[name] for receipt in receipts) for name in COUNTS}
    ledger |= packed.plan.counts[side].describe()
    ledger["stores"] = add_up_stores([receipt["stores"] for receipt in receipts])
    for what, in_store in (("sequences", len(store)), ("tokens", store.num_tokens)):
        found = ledger[f"num_{what}"] + sum(ledger[f"num_dropped_{what}"].values())
        expected = in_store + ledger[f"num_repeated_{what}"]
        if found != expected:  # our own bug
            raise AssertionError(f"packed or dropped {found} of {expected} {what}: {ledger}")
    return {
        **{name: store.manifest[name] for name in OF_STORES},
        "stores": describe_stores(store, packed.source.passes, folder),
        "ledger": ledger,
    }


# Splits


def _describe_splits_run(source: Selection) -> dict[str, Any]:
    """Return the plan of a run with splits, from what is selected for one of them."""
    options = replace(source.options, split_name=None)
    stores, *others = map(describe_stores, source.sides)
    return {
        "format": FORMAT_OF_SPLITS,
        "format_version": SPLITS_FORMAT_VERSION,
        "split_seed": options.split_seed,
        "split_by": options.split_by,
        "splits": [{"name": name, "share": it} for name, it in options.split_shares.items()],
        "stores": stores,
        "decoder_stores": others[0] if others else None,
        "options": {**record_options(options), **{name: getattr(options, name) for name in APART}},
    }


def describe_splits(
    store: TokenStore, options: PackOptions, find: PartSplits
) -> list[dict[str, Any]]:
    """Count the documents, sequences and tokens of each split; raise DataError for an empty one.

    Args:
        find: from `make_splitter`.
    """
    shares = options.split_shares
    counts = np.zeros((3, len(shares)), np.int64)
    for part in range(store.num_parts):
        numbers, num_sequences = find(part), store.count_sequences(part)
        counts[1] += np.bincount(numbers, minlength=len(shares))
        tokens = np.bincount(numbers, store.part_lengths(part), len(shares))
        counts[2] += tokens.astype(np.int64)
        if not (num_sequences == 1).all():
            numbers = numbers[(np.cumsum(num_sequences) - num_sequences)[num_sequences > 0]]
        counts[0] += np.bincount(numbers, minlength=len(shares))
        store.let_pages_go()  # 28 bytes for each document
    names = ("num_documents", "num_sequences", "num_tokens")
    entries = [
        {"name": name, "share": share, **dict(zip(names, column, strict=True))}
        for (name, share), column in zip(shares.items(), counts.T.tolist(), strict=True)
    ]
    for entry in entries:
        if not entry["num_sequences"]:
            total = int(counts[0].sum())
            hint = "pass a larger share to --split, or another --split-seed"
            if entry["share"] is None:
                by = quote(options.split_by)
                hint = f"leave out {entry['name']}: column {by} has no such value"
            raise DataError(
                f"{store.shown_path}: split {quote(entry['name'])} is empty: none of {total:,} "
                "documents is in it",
                hint=hint,
            )
    return entries


# Notes


def _describe_small(entry: dict[str, Any], options: ResolvedOptions) -> str | None:
    """Return a note if a split is too small to fill a batch."""
    for option, limit, what in (
        ("--batch-size", options.batch_size, "sequences"),
        ("--max-tokens", options.max_tokens, "tokens"),
    ):
        number = entry[f"num_{what}"]
        if limit is not None and number < limit:
            return (
                f"split {quote(entry['name'])} does not fill a batch: it has {number:,} {what}, "
                f"fewer than {option} {limit:,}"
            )
    return None


def _note_results(packed: _Set, manifest: dict[str, Any], workers: Workers) -> None:
    """Tell of stores without their share, and of batches without a next-token label."""
    options, plan = packed.source.options, packed.plan
    place = "" if options.split_name is None else f" into split {quote(options.split_name)}"
    folders, counts = packed.source.store.folders, manifest["ledger"]["stores"]
    for store, counted in zip(folders, counts, strict=True):
        if not counted["num_sequences"]:
            workers.progress.on_notice(f"no sequence of {store.path} was packed{place}")
    if options.share is not None and options.has_passes:
        shares = np.array([*parse_numbers(options.share, "--share").values()], float)
        num_tokens = np.array([counted["num_tokens"] for counted in counts])
        asked, found = shares / shares.sum(), num_tokens / num_tokens.sum()
        worst = int(np.abs(found - asked).argmax())
        if abs(found[worst] - asked[worst]) > MAX_SHARE_ERROR:
            workers.progress.on_notice(
                f"--share: {folders[worst].path} has {found[worst]:.2%} of the tokens "
                f"packed{place}, asked for {asked[worst]:.2%}"
            )
    table = plan.table.sides[-1]  # of pairs the decoder's side
    number = table.add_up(table.longest == 1)
    if number and not options.carries_state:
        workers.progress.on_notice(
            f"{number:,} of {plan.num_batches:,} batches have no next-token label: their sequences "
            "have one token each; pass --drop-shorter 2"
        )

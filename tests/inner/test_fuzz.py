"""The fuzzer: every target a few hundred times, its own controls, and what it once found."""

from __future__ import annotations

import copy
import functools
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from fuzz import draw_input
from fuzz_guard import limited
from fuzz_lab import FILE_KINDS, MANIFEST, Files, Seed, open_lab, put_kind, replace_files
from fuzz_mutators import Choices, apply_edits, draw_edits, spell
from fuzz_targets import TARGETS
from fuzz_uses import (
    REPORT_USES,
    SHARDS_USES,
    STORE_USES,
    Use,
    pack_and_read,
    pack_anew,
    run_inspect,
    run_unpack,
    run_use,
    run_verify,
)
from shard_reference import Arrays, change_shard, make_shards

import seqpack_cli.training.store_batches  # with torch, before memory is limited
from seqpack_cli.batching.options import PackOptions
from seqpack_cli.errors import FolderError
from seqpack_cli.reporting import rows
from seqpack_cli.shards.shard_set import open_shards

assert seqpack_cli.training.store_batches
SHARD = "shard-00000.safetensors"
RUNNER = Path(__file__).parent / "campaigns" / "fuzz.py"


def run_fuzzer(folder: Path, *arguments: object) -> dict[str, Any]:
    """Run the runner as a user would; return its last line."""
    command = [sys.executable, RUNNER, "--findings", folder / "findings", *arguments]
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert done.returncode == bool(found["findings"]), done.stderr
    assert done.returncode == 0 or "--replay" in done.stderr
    found["stderr"] = done.stderr
    return found


def test_fuzzer_finds_nothing_and_reaches_deep(tmp_path: Path) -> None:
    found = run_fuzzer(tmp_path, "--executions", 400, "--seed", 17, "--num-workers", 1)
    assert not found["findings"], found["stderr"][-5000:]
    assert found["executions"] == 400
    assert [*found["targets"]] == [*TARGETS]
    for target, reached in found["targets"].items():
        # Most targets open a quarter or more; some have 9 executions, so the bound is lower.
        assert reached["opened"] > 0.05, target
        assert 0 < reached["outcomes"].get("success", 0) < reached["executions"], target
        assert len(reached["outcomes"]) >= 3, target


@pytest.mark.slow
def test_million_executions_find_nothing(tmp_path: Path) -> None:
    found = run_fuzzer(tmp_path, "--executions", 1_000_000, "--seed", 11)
    assert not found["findings"], found["stderr"][-20_000:]
    assert found["executions"] == 1_000_000


def test_fuzzer_notices_faults(tmp_path: Path) -> None:
    """Exceptions, memory, files outside, processes, and a worker that dies."""
    found = run_fuzzer(
        tmp_path, "--executions", 40, "--seed", 12, "--target", "faults", "--num-workers", 1
    )
    kinds = {finding["kind"] for finding in found["findings"]}
    for part in (
        *("ValueError at fuzz_controls.py", "MemoryError at fuzz_controls.py"),
        *("touched ('open', ", "touched ('os.mkdir', ", "touched ('subprocess.Popen', "),
        "the process ended with -6 at faults",
    ):
        assert any(kind.startswith(part) for kind in kinds), (part, kinds)
    assert found["executions"] == 40


def test_kept_input_is_found_again(tmp_path: Path) -> None:
    kept = tmp_path / "faults.0.bin"
    kept.write_bytes(bytes(8))  # the first of the faults
    done = subprocess.run(
        [sys.executable, str(RUNNER), "--replay", str(kept)], capture_output=True, text=True
    )
    assert "not one of ours" in done.stdout


@pytest.mark.parametrize("target", TARGETS)
def test_same_bytes_give_the_same_outcome(target: str) -> None:
    """Else a kept input would say nothing; the folders are whole again after each."""
    for number in (3, 12):
        data = draw_input(3, target, number)
        first = TARGETS[target](data)
        TARGETS[target](draw_input(4, target, number))
        assert TARGETS[target](data) == first
    for seed in (*open_lab().stores, *open_lab().shards):
        assert {path.name: path.read_bytes() for path in seed.folder.iterdir()} == seed.files


def test_good_folders_pass_every_use() -> None:
    for seed in (*open_lab().stores, *open_lab().shards):
        for data in (b"", bytes(range(1, 9)), bytes(range(255, 247, -1))):
            for use in (*uses_of(seed), *(REPORT_USES if data == b"" else ())):
                outcome = run_use(use, seed.folder, Choices(data))
                assert outcome.error in (
                    *(None, "OptionError in describe_batch", "OptionError in describe_sequence"),
                    *("OptionError in _find_in_shards", "OptionError in check_batch"),
                )


def test_edits_of_a_text_change_nothing_else() -> None:
    value = {"a": [1, {"b": None}], "c": "x"}
    text = spell(value)
    assert json.loads(text.raw) == value
    for path, start, end in text.values:
        inner: Any = value
        for key in path:
            inner = inner[key]
        assert json.loads(text.raw[start:end]) == inner
    drawn = {
        apply_edits(text.raw, draw_edits(text, Choices(draw_input(0, "", number))))
        for number in range(500)
    }
    parsed = sum(_is_json(raw) for raw in drawn)
    assert len(drawn) > 250
    assert len(drawn) * 0.5 < parsed < len(drawn)


def _is_json(raw: bytes) -> bool:
    try:
        json.loads(raw)
    except (ValueError, RecursionError):
        return False
    return True


# What the fuzzer found, and what was found while it was written: an exception of another kind, a
# file that was waited for, followed or overwritten, memory without bound, text for a terminal.

# Each form as text, two as JSON too; structure as JSON and roundtrip as text; ids and text.
CHOICES: dict[Use, tuple[bytes, ...]] = {
    run_inspect: (b"\0\0\0", b"\0\0\6", *(bytes([1, 0, form]) for form in (0, 4, 6, 8))),
    run_verify: (b"\0", b"\1\1"),
    run_unpack: (b"\0", b"\1"),
    pack_anew: (b"\0", b"\7"),
}
Values = list[tuple[tuple[str | int, ...], object]]


def uses_of(seed: Seed) -> list[Use]:
    """Return each use of a folder once."""
    return list(dict.fromkeys(STORE_USES if seed.entries == "parts" else SHARDS_USES))


def use_all(seed: Seed, changes: Files, **kinds: str) -> list[str | None]:
    """Use a damaged folder in every way, with some choices each; return the errors.

    Args:
        kinds: what stands in the place of a file, by the beginning of the file's name.
    """
    errors = []
    with ExitStack() as stack:
        stack.enter_context(limited(growth_bytes=1 << 28))
        stack.enter_context(replace_files(seed, changes))
        for begin, kind in kinds.items():
            name = min(name for name in seed.files if name.startswith(begin))
            stack.enter_context(put_kind(seed.folder / name, kind))
        for use in uses_of(seed):
            for choices in CHOICES.get(use, (b"\1",)):
                errors.append(run_use(use, seed.folder, Choices(choices)).error)
    return errors


def with_values(seed: Seed, values: Values) -> Files:
    """Return the manifest with other values; bytes are JSON as they are."""
    edits = [
        (*seed.manifest.places[path], new if isinstance(new, bytes) else json.dumps(new).encode())
        for path, new in values
    ]
    return {MANIFEST: apply_edits(seed.manifest.raw, edits)}


def find_seed(name: str) -> Seed:
    """Find the good folder of this name, of small ids."""
    lab = open_lab()
    return next(seed for seed in (*lab.stores, *lab.shards) if seed.folder.name == name)


NO_SOURCES: Values = [(("sources",), []), (("ledger", "num_documents"), 0)]


def test_store_whose_documents_are_of_no_source_is_refused() -> None:
    """The way back looked for a source in an empty list."""
    no_ranges: Values = [(("parts", number, "ranges"), []) for number in range(2)]
    seed = find_seed("store")
    assert None not in use_all(seed, with_values(seed, [*NO_SOURCES, *no_ranges]))


def test_store_without_parts_is_used_or_refused() -> None:
    """`plan` took the largest of no lengths."""
    seed = find_seed("store")
    use_all(seed, with_values(seed, [*NO_SOURCES, (("parts",), [])]))


@pytest.mark.parametrize("kind", ["nothing", "folder", "link", "pipe", "link to a device"])
def test_files_of_a_shard_entry_do_not_stand_for_the_shard(kind: str) -> None:
    """A list `files` in the entry was checked in the place of the shard: a pipe was waited for."""
    seed = find_seed("packed")
    size = len(seed.files["tokenizer.json"])
    entry = {
        **json.loads(seed.manifest.raw)["shards"][0],
        "files": [{"name": "tokenizer.json", "bytes": size, "blake3": ""}],
    }
    errors = use_all(seed, with_values(seed, [(("shards", 0), entry)]), shard=kind)
    assert any(error is not None and error.startswith("FolderError") for error in errors)


@pytest.mark.parametrize("number", [2**30, 2**36, 2**40, 2**53])
@pytest.mark.parametrize("reason", [None, "drop_longer"])
def test_ledger_of_many_sequences_takes_no_memory(number: int, reason: str | None) -> None:
    """`verify` took a byte for each sequence that the ledger claims."""
    seed = find_seed("packed")
    values: Values = [(("ledger", "num_sequences"), number)]
    if reason is not None:
        values = [
            (("ledger", "num_dropped_sequences"), {reason: number}),
            (("ledger", "num_dropped_tokens"), {reason: 0}),
        ]
    use_all(seed, with_values(seed, values))


SHOWN: dict[str, list[tuple[str | int, ...]]] = {
    "store": [
        *(("bos_id",), ("tokenizer_blake3",), ("sources", 0, "path"), ("options",)),
        ("options", "overflow"),
    ],
    "packed": [
        *(("stores", 0, "path"), ("stores", 0, "blake3"), ("tokenizer_blake3",), ("options",)),
        ("ledger", "num_dropped_sequences"),
    ],
}


@pytest.mark.parametrize("new", [b'"\\ud800"', b'"\\u001b[2J"', b'"x\\u0000\\r"', b"1e400", b"NaN"])
@pytest.mark.parametrize(
    ("name", "path"), [(name, path) for name, paths in SHOWN.items() for path in paths]
)
def test_values_that_are_shown_can_be_printed(
    name: str, path: tuple[str | int, ...], new: bytes
) -> None:
    """Half a character, an infinite number, and what a terminal takes as a command."""
    seed = find_seed(name)
    values: Values = [(path, new)]
    if path[-1] == "options":
        values = [(path, b'{"a": ' + new + b"}")]
    if path[-1] == "num_dropped_sequences":
        key = new if new.startswith(b'"') else b'"a"'
        values = [
            ((*path[:-1], name), b"{%s: 0}" % key) for name in (path[-1], "num_dropped_tokens")
        ]
    use_all(seed, with_values(seed, values))


@pytest.mark.parametrize("new", [b'"\\ud800"', b'"\\u001b[2J"', b"1e400", b"NaN", b"[]"])
@pytest.mark.parametrize("name", ["store", "packed"])
def test_run_json_is_only_shown(name: str, new: bytes) -> None:
    seed = find_seed(name)
    errors = use_all(seed, {"run.json": b'{"encoder": ' + new + b"}"})
    assert errors == use_good(name)


@functools.cache
def use_good(name: str) -> list[str | None]:
    """Use a folder as it is in every way; return the errors."""
    return use_all(find_seed(name), {})


@pytest.mark.parametrize("dtype", [b'"\\u0000"', b'"\\u001b[2J"', b'"\\ud800"'])
def test_dtype_of_a_tensor_is_quoted(dtype: bytes) -> None:
    """The library's message held it as it was."""
    seed = find_seed("packed")
    raw = seed.files[SHARD]
    header = raw[8 : 8 + int.from_bytes(raw[:8], "little")]
    header = header.replace(b'"U16"', dtype)
    changed = (
        len(header).to_bytes(8, "little") + header + raw[8 + int.from_bytes(raw[:8], "little") :]
    )
    changes = with_values(seed, [(("shards", 0, "bytes"), len(changed))])
    assert "FolderError in map_tensor_file" in use_all(seed, {**changes, SHARD: changed})


@pytest.mark.parametrize("number", [2**31, 2**53])
def test_batches_beyond_what_a_shard_can_hold_are_refused(number: int) -> None:
    """A sampler that shuffles takes 8 bytes for each batch that the dataset claims."""
    seed = find_seed("packed")
    changes = with_values(seed, [(("shards", 0, "num_batches"), number)])
    with replace_files(seed, changes), pytest.raises(FolderError):
        open_shards(seed.folder)


def test_index_beyond_the_store_has_no_way_back(tmp_path: Path) -> None:
    """`inspect --sequence` looked it up in the store."""
    shards = make_shards(tmp_path)

    def change(arrays: Arrays) -> None:
        arrays["original_indices"][0] = 100

    change_shard(shards, change)
    try:
        found = rows.describe_sequence(open_shards(shards), 100)
    except FolderError:
        return
    assert found["origin"] is None


@pytest.mark.parametrize("max_tokens", [2**31, 2**63, 2**200, -(2**70)])
def test_any_max_tokens_of_varlen_is_used_or_refused(max_tokens: int) -> None:
    """`verify` wanted it to fit an int64."""
    seed = find_seed("varlen")
    use_all(seed, with_values(seed, [(("options", "max_tokens"), max_tokens)]))


def pack_over(left: Callable[[Path], object], tmp_path: Path, *, overwrite: bool) -> str | None:
    """Pack into a folder in which something was left; return the error."""
    seed = find_seed("packed")
    output = tmp_path / "output"
    output.mkdir()
    left(output)
    options = PackOptions(batch_size=3, shard_bytes=300)

    def pack(folder: Path, choices: Choices) -> Iterator[None]:
        yield from pack_and_read(folder, output, options, overwrite=overwrite)

    with limited():
        return run_use(pack, seed.folder.parent / "store", Choices(b"")).error


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("is_there", [False, True])
def test_lock_that_is_a_link_harms_nothing(
    tmp_path: Path, *, is_there: bool, overwrite: bool
) -> None:
    """The file behind it was cut and written to, or made."""
    precious = tmp_path / "precious"
    if is_there:
        precious.write_text("precious")
    error = pack_over(
        lambda output: (output / ".lock").symlink_to(precious), tmp_path, overwrite=overwrite
    )
    assert error is not None
    assert precious.exists() == is_there
    assert not is_there or precious.read_text() == "precious"


@pytest.mark.parametrize("found", ["\x1b[2J", {}, [], None, 5, "seqpack.tokens"])
@pytest.mark.parametrize("file", ["plan.json", "manifest.json"])
def test_format_of_another_run_may_be_anything(tmp_path: Path, file: str, found: object) -> None:
    """It was printed as it was, and wanted to be hashed."""
    plan = {"format": found, "options": {}}
    error = pack_over(
        lambda output: (output / file).write_text(json.dumps(plan)), tmp_path, overwrite=True
    )
    assert error == "FolderError in RunFolder._remove_own_files"


CANNOT_WRITE = "MachineError in naming_failures"


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize(
    "name",
    [
        *(".lock", ".plan.json.1.tmp", "plan.json", "manifest.json", "run.json", "tokenizer.json"),
        *("shard-00000.json", "shard-00000.safetensors", "shard-00007.safetensors"),
    ],
)
@pytest.mark.parametrize("kind", ["folder", "pipe", "link to itself"])
def test_pack_over_what_is_not_a_file_is_done_or_refused(
    tmp_path: Path, kind: str, name: str, *, overwrite: bool
) -> None:
    def leave(output: Path) -> None:
        plan = {"format": "seqpack.shards", "options": {}}
        (output / "plan.json").write_text(json.dumps(plan))
        (output / name).unlink(missing_ok=True)
        FILE_KINDS[kind](output / name)

    error = pack_over(leave, tmp_path, overwrite=overwrite)
    if name in (".lock", ".plan.json.1.tmp"):
        refused = "FolderError in _open_locked" if name == ".lock" else CANNOT_WRITE
        assert error == refused
    elif overwrite or name in ("plan.json", "manifest.json", "shard-00000.json"):
        refusals = ("FolderError",)
        assert error is not None and error.startswith(refusals)
    else:
        assert error == (CANNOT_WRITE if kind == "folder" and "7" not in name else None)


RECEIPTS: dict[str, Callable[[dict[str, Any]], object]] = {
    "nothing": dict.copy,
    "a count that is a text": lambda entry: entry.update(num_tokens="1"),
    "a count that is missing": lambda entry: entry.pop("num_batches"),
    "a count that is none": lambda entry: entry.update(longest=None),
    "another shard": lambda entry: entry.update(name="shard-00001.safetensors"),
    "no checksum": lambda entry: entry.pop("blake3"),
}


@pytest.mark.parametrize("change", RECEIPTS.values(), ids=RECEIPTS)
def test_damaged_receipt_is_not_taken(
    tmp_path: Path, change: Callable[[dict[str, Any]], object]
) -> None:
    """Its shard is made again; a right one is taken."""
    seed = find_seed("packed")
    manifest = json.loads(seed.manifest.raw)
    entry = manifest["shards"][0]
    for name in ("vocab_size", "max_id", "bucket_keys", "ledger", "shards"):
        del manifest[name]
    del manifest["stores"][0]["path"]
    good, inodes = copy.deepcopy(entry), {}
    change(entry)

    def leave(output: Path) -> None:
        (output / "plan.json").write_text(json.dumps(manifest))
        (output / "shard-00000.json").write_text(json.dumps(entry))
        for name, raw in seed.files.items():
            if name.endswith(".safetensors"):
                (output / name).write_bytes(raw)
                inodes[name] = (output / name).stat().st_ino

    assert pack_over(leave, tmp_path, overwrite=False) is None
    made = json.loads((tmp_path / "output" / "manifest.json").read_bytes())
    assert made["ledger"] == json.loads(seed.manifest.raw)["ledger"]
    is_taken = (tmp_path / "output" / SHARD).stat().st_ino == inodes[SHARD]
    assert is_taken == (entry == good)

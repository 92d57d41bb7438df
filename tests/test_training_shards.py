"""A ShardDataset's batches are torch's own layouts of the rows that the page's reader finds.

The shards are written from docs/formats.md by `tests/oracle/`; labels are made token by token.
"""

from __future__ import annotations

import inspect
import json
import pickle
import re
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from oracle.batches import PageBatch
from oracle.labels import find_kinds
from page_sets import ALL, EOS, PAIRS, SETS, Sets, change_shard, edit, write_stores
from pair_corpus import make_pair_shards
from slow_tensors import expect, expect_pair, spell
from small_shards import make_shards
from torch.nn.attention.flex_attention import create_block_mask
from torch.utils.data import ConcatDataset, DataLoader, Subset

from seqpack_cli import PairTensors, ShardDataset, StreamSlice, VarlenTensors
from seqpack_cli.errors import FolderError

LABELS = ("label", "id", "score", "flag", "tags")


@pytest.fixture(scope="module")
def sets(tmp_path_factory: pytest.TempPathFactory) -> Sets:
    folder = tmp_path_factory.mktemp("page")
    (folder / "sets").mkdir()
    return Sets(folder, write_stores(folder))


def list_labels(page: PageBatch) -> list[str | None]:
    """Return what labels may be."""
    same = [] if page.manifest["layout"] == "streams" else ["same"]
    return [None, "next", *same, *(name for name in find_kinds(page) if name in (*LABELS, "from"))]


def check_items(sets: Sets, name: str) -> None:
    """Compare every item with the page's, and read each in another way."""
    (pages,) = sets.sides(name)
    datasets = {labels: ShardDataset(sets[name], labels=labels) for labels in list_labels(pages[0])}
    for number in range(max(min(len(pages), 40), len(datasets))):
        labels, place = [*datasets][number % len(datasets)], number % len(pages)
        dataset = datasets[labels]
        assert len(dataset) == len(pages)
        if number % 7 == 0:
            dataset = pickle.loads(pickle.dumps(dataset))  # noqa: S301 - our own
        item = dataset[place - len(pages) * (number % 3 == 0)]
        assert spell(item) == expect(pages[place], labels)


@pytest.mark.parametrize("name", SETS)
def test_items_are_the_layouts_of_torch(sets: Sets, name: str) -> None:
    check_items(sets, name)


TINY = ("packed columns", "padded filler", "varlen rows", "streams columns")


@pytest.mark.parametrize("name", TINY)
def test_items_are_the_layouts_of_torch_with_tiny_limits(sets: Sets, name: str, tiny: int) -> None:
    check_items(sets, name)


@pytest.mark.parametrize(("bos", "eos"), [(None, None), (257, 258), (None, 259), (0, None)])
@pytest.mark.parametrize("name", PAIRS)
def test_pairs_are_the_layouts_of_torch(
    sets: Sets, name: str, bos: int | None, eos: int | None
) -> None:
    sides = sets.sides(name)
    begins, ends = (
        {row[place] for page in sides[1] for row in page.rows if row} for place in (0, -1)
    )
    bos, eos = None if bos in begins else bos, None if eos in ends else eos
    has_single = any(len(row) == 1 for page in sides[1] for row in page.rows)
    for labels in (None, "next", "label", "tags"):
        if labels == "next" and has_single and (bos, eos) == (None, None):
            continue
        dataset = ShardDataset(sets[name], labels=labels, bos_id=bos, eos_id=eos)
        assert len(dataset) == len(sides[0])
        for place, pages in islice(enumerate(zip(*sides, strict=True)), 6):
            assert spell(dataset[place]) == expect_pair(pages, labels, bos, eos)


@pytest.mark.parametrize("options", [{}, {"layout": "padded", "last_batch": "pad"}])
def test_labels_of_pairs_may_be_columns_of_the_decoder(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    found = Sets(tmp_path, {})
    path = make_pair_shards(tmp_path / "sets", **options)
    (tmp_path / "sets" / "pairs").symlink_to(path)
    sides = found.sides("pairs")
    for labels in ("number", "decoder.number", "decoder.lang"):
        dataset = ShardDataset(path, labels=labels, bos_id=257)
        for item, *pages in zip(dataset, *sides, strict=True):
            assert spell(item) == expect_pair(pages, labels, 257, None)
    assert dataset.class_names("decoder.lang") == dataset.class_names("lang")
    chosen = ShardDataset(path, columns=["decoder.number"], labels="lang")[0]
    assert isinstance(chosen, PairTensors)
    assert ([*chosen.encoder.columns], [*chosen.decoder.columns]) == (["lang"], ["number"])


@pytest.mark.parametrize("name", ALL)
def test_dataset_says_what_the_manifest_says(sets: Sets, name: str) -> None:
    path = sets[name]
    manifest = json.loads((path / "manifest.json").read_bytes())
    decoder = manifest["decoder"] or {}
    dataset = ShardDataset(path)
    for found, side in (("", manifest), ("decoder_", decoder)):
        for field in ("vocab_size", "pad_id"):
            assert getattr(dataset, found + field) == side.get(field)
    assert dataset.decoder_bos_id == decoder.get("bos_id")
    assert dataset.decoder_eos_id == decoder.get("eos_id")
    assert (dataset.layout, dataset.bucket_keys) == (manifest["layout"], manifest["bucket_keys"])
    is_streams = manifest["layout"] == "streams"
    assert dataset.num_streams == (manifest["options"]["batch_size"] if is_streams else None)
    assert (dataset.path, dataset.paths) == (path, (path,))
    assert f"num_batches={len(dataset)}" in repr(dataset)
    for prefix, side in (("", manifest), ("decoder.", decoder)):
        for column in side.get("columns", []):
            found = prefix + column["name"]
            if "class_names" in column:
                assert dataset.class_names(found) == column["class_names"]
            assert dataset.columns[found].kind == column["kind"]


@pytest.mark.parametrize("name", ["packed columns", "padded targets", "streams columns"])
def test_columns_are_those_that_are_asked_for(sets: Sets, name: str) -> None:
    (pages,) = sets.sides(name)
    kinds = find_kinds(pages[0])
    for names in ([], ["id"], ["title", "id"]):
        for labels in (None, "next", "label"):
            if labels != "label" or labels in kinds:
                dataset = ShardDataset(sets[name], columns=names, labels=labels)
                for place, page in enumerate(pages[:2]):
                    assert spell(dataset[place]) == expect(page, labels, {*names, labels})


@pytest.mark.parametrize("name", [name for name in SETS if name.startswith("streams")])
def test_ranks_have_their_streams_of_each_batch(sets: Sets, name: str) -> None:
    (pages,) = sets.sides(name)
    dataset = ShardDataset(sets[name], labels="next")
    number = dataset.num_streams
    assert number is not None
    for place, start, stop in ((0, 0, 1), (1, 1, number), (-1, number - 1, number)):
        part, whole = dataset[StreamSlice(place, start, stop)], expect(pages[place], "next")
        found = spell(part)
        _, rows = whole["row_indices"]
        taken = [row for row, stream in enumerate(rows) if start <= stream < stop]
        for field in ("ids", "labels", "resets"):
            dtype, steps = whole[field]
            assert found[field] == (dtype, [step[start:stop] for step in steps])
        for field in ("lengths", "original_indices", "piece_starts"):
            dtype, values = whole[field]
            assert found[field] == (dtype, [values[row] for row in taken])
        assert found["row_indices"][1] == [rows[row] - start for row in taken]
        for column, values in whole["columns"].items():
            if isinstance(values, list):
                assert found["columns"][column] == [values[row] for row in taken]
            elif find_kinds(pages[0])[column] in ("tags", "targets", "overlap"):
                expected = [step[start:stop] for step in values[1]]
                assert found["columns"][column][1] == expected
            else:
                assert found["columns"][column][1] == [values[1][row] for row in taken]
    for wrong in ((-1, 1), (1, 1), (0, number + 1), (2, 1)):
        with pytest.raises(ValueError, match=f"{number} streams of a batch"):
            dataset[StreamSlice(0, *wrong)]


def test_several_shard_sets_are_read_in_turn(sets: Sets) -> None:
    names = ["packed dropped", "packed columns"]
    pages = [page for name in names for page in sets.sides(name)[0]]
    dataset = ShardDataset([sets[name] for name in names], labels="label")
    assert (len(dataset), dataset.paths) == (len(pages), tuple(sets[name] for name in names))
    parts = ConcatDataset([ShardDataset(sets[name], labels="label") for name in names])
    for place, page in enumerate(pages):
        expected = expect(page, "label")
        assert spell(dataset[place]) == spell(dataset[place - len(pages)]) == expected
        assert spell(parts[place]) == expected
    again = pickle.loads(pickle.dumps(dataset))  # noqa: S301 - our own
    assert spell(again[-1]) == expect(pages[-1], "label")
    with pytest.raises(AttributeError, match="no one path"):
        _ = dataset.path
    part = dataset[1:-1:2]
    assert isinstance(part, Subset)
    assert [*part.indices] == [*range(len(pages))][1:-1:2]


def test_bucket_keys_are_those_of_all_shard_sets(tmp_path: Path) -> None:
    given = [(4, 12), (8, 12), None]
    paths = [
        make_shards(tmp_path / str(keys), seed=n, layout="padded", buckets=keys)
        for n, keys in enumerate(given)
    ]
    assert ShardDataset(paths[:2]).bucket_keys == [4, 8, 12]
    assert ShardDataset(paths).bucket_keys is None


# What a batch can do


MOVED = ("encoder", "decoder", "sequences", "ids", "mask", "cu_seqlens", "cu_seqlens_padded")
MOVED += ("position_ids", "resets", "labels", "columns")


def find_devices(value: Any) -> Any:
    """Return whether tensors are on `meta`."""
    if isinstance(value, tuple):
        return value[0].is_meta and not value[1].is_meta
    if isinstance(value, dict):
        return all(found.is_meta for found in value.values() if isinstance(found, torch.Tensor))
    return value.is_meta


@pytest.mark.parametrize(
    "name", ["packed columns", "padded filler", "varlen rows", "streams columns", "pairs"]
)
def test_batches_move_and_are_pickled(sets: Sets, name: str, tiny: int) -> None:
    batch = ShardDataset(sets[name], labels="next", eos_id=EOS if name in PAIRS else None)[0]
    for copy in (pickle.loads(pickle.dumps(batch)), batch.to("cpu")):  # noqa: S301 - our own
        assert spell(copy) == spell(batch)
    moved: Any = batch.to("meta", non_blocking=True)
    both = [(moved.encoder, batch.encoder), (moved.decoder, batch.decoder)] if name in PAIRS else []
    for there, here in both or [(moved, batch)]:
        names = [each for each in type(here).__slots__ if getattr(here, each) is not None]
        for each in names:
            value = getattr(there, each)
            if isinstance(value, (torch.Tensor, tuple, dict)):
                assert find_devices(value) == (each in MOVED), each
    assert moved.labels.is_meta
    assert type(batch).__name__ in repr(batch)


@pytest.mark.parametrize("name", ["packed columns", "pairs padded", "varlen rows"])
def test_items_may_be_changed(sets: Sets, name: str) -> None:
    dataset = ShardDataset(sets[name], labels="next")
    before, batch = spell(dataset[0]), dataset[0]
    for side in [batch.encoder, batch.decoder] if isinstance(batch, PairTensors) else [batch]:
        side.lengths.zero_()
        (side.sequences.data if hasattr(side, "sequences") else side.ids).zero_()
    assert spell(dataset[0]) == before


def find_groups(batch: VarlenTensors) -> list[list[int]]:
    """Return the sequence of each cell of each row; in padding a number that no other cell has."""
    rows, width = (1, *batch.ids.shape)[-2:]
    groups = [-1 - cell for cell in range(rows * width)]
    padded = batch.cu_seqlens if batch.cu_seqlens_padded is None else batch.cu_seqlens_padded
    for number, length in enumerate(batch.lengths.tolist()):
        first = int(padded[number])
        groups[first : first + length] = [number] * length
    return [groups[row * width : row * width + width] for row in range(rows)]


@pytest.mark.parametrize("name", [name for name in SETS if name.startswith("varlen")])
def test_kernels_are_told_where_sequences_begin(sets: Sets, name: str) -> None:
    (pages,) = sets.sides(name)
    dataset = ShardDataset(sets[name], labels="same")
    for place in {0, len(pages) // 2, len(pages) - 1}:
        batch = dataset[place]
        assert isinstance(batch, VarlenTensors)
        groups = find_groups(batch)
        ids = [max(group, -1) for row in groups for group in row]
        assert batch.sequence_ids.flatten().tolist() == ids
        assert batch.sequence_ids.shape == batch.ids.shape
        starts, runs = [], []  # of sequences, and of padding up to the next one or the row's end
        for row, found in enumerate(groups):
            for cell, group in enumerate(found):
                previous = None if not cell else max(found[cell - 1], -1)
                if max(group, -1) != previous:
                    starts.append(row * len(found) + cell)
                runs.append(len(starts) - 1)
        begins = [*starts, len(runs)]
        longest = max(end - start for start, end in pairwise(begins))
        rows = batch.ids.view(len(groups), -1)
        cu_seqlens = spell(torch.tensor(begins, dtype=torch.int32))
        names = {"flash_attn": ("cu_seqlens_q", "cu_seqlens_k", "max_seqlen_q", "max_seqlen_k")}
        names["torch"] = ("cu_seq_q", "cu_seq_k", "max_q", "max_k")
        for target, each in names.items():
            expected = dict(zip(each, [cu_seqlens] * 2 + [longest] * 2, strict=True))
            assert spell(batch.to_kwargs(target)) == expected
        for first in (0, 2):
            assert spell(batch.to_kwargs("transformers", first_position=first)) == {
                "input_ids": spell(rows),
                "position_ids": spell(batch.position_ids.view(rows.shape) + first),
                "labels": spell(batch.labels.view(rows.shape)),
                "seq_idx": spell(torch.tensor(runs, dtype=torch.int32).view(rows.shape)),
                "cu_seq_lens_q": cu_seqlens,
                "cu_seq_lens_k": cu_seqlens,
                "max_length_q": longest,
                "max_length_k": longest,
                "use_cache": False,
            }
        padded, most = batch.cu_seqlens_padded, batch.max_seqlen
        megatron = {"qkv_format": "thd"} | dict.fromkeys(
            ("cu_seqlens_q", "cu_seqlens_kv"), spell(batch.cu_seqlens)
        )
        if padded is not None:
            most = int(padded.diff().max())
            both = ("cu_seqlens_q_padded", "cu_seqlens_kv_padded")
            megatron |= dict.fromkeys(both, spell(padded))
        megatron |= dict.fromkeys(("max_seqlen_q", "max_seqlen_kv"), most)
        assert spell(batch.to_kwargs("megatron")) == megatron
    check_masks(batch, torch.tensor(groups))


def check_masks(batch: VarlenTensors, groups: torch.Tensor) -> None:
    """Compare the masks with those of the sequence of each cell."""
    rows, width = groups.shape
    for causal in (True, False):
        seen = groups[:, :, None] == groups[:, None, :]
        seen = (seen.tril() if causal else seen)[:, None]
        assert torch.equal(batch.attention_mask(causal=causal), seen)
        scores = batch.attention_mask(causal=causal, dtype=torch.float16)
        lowest = torch.finfo(torch.float16).min
        assert torch.equal(scores, torch.where(seen, 0, lowest).to(torch.float16))
        cells = torch.arange(width)
        mask_mod = batch.mask_mod(causal=causal)
        for row in range(rows):
            found = mask_mod(torch.tensor(row), 0, cells[:, None], cells[None])
            assert torch.equal(found, seen[row, 0])
        made = create_block_mask(mask_mod, rows, None, width, width, device="cpu")
        assert torch.equal(batch.block_mask(causal=causal).to_dense(), made.to_dense())
    assert torch.equal(batch.attention_mask(), batch.attention_mask(causal=True))
    assert inspect.signature(batch.mask_mod).parameters["causal"].default is True


def test_arguments_have_labels_only_where_a_model_takes_them(sets: Sets) -> None:
    for labels, is_there in ((None, False), ("flag", False), ("tags", True)):
        batch = ShardDataset(sets["varlen pieces"], labels=labels)[0]
        assert ("labels" in batch.to_kwargs("transformers")) == is_there
    batch = ShardDataset(sets["varlen"], labels="next")[0]
    with pytest.raises(ValueError, match="expected labels='same'"):
        batch.to_kwargs("transformers")
    with pytest.raises(ValueError, match="expected one of 'transformers'"):
        batch.to_kwargs("xformers")


def test_block_masks_of_several_rows_are_those_of_their_cells(sets: Sets) -> None:
    batch = ShardDataset(sets["varlen rows"])[0]
    assert batch.block_mask().shape[0] == len(batch.ids)


@pytest.mark.filterwarnings("ignore:This DataLoader will create")  # on a single core
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.parametrize("num_workers", [0, 2])
def test_loader_of_torch_gives_the_items(sets: Sets, num_workers: int) -> None:
    parts: list[Any] = [
        ShardDataset(sets[name], labels="next") for name in ("padded filler", "varlen rows")
    ]
    parts.append(ShardDataset(sets["pairs"], labels="next", eos_id=EOS))
    parts.append(ShardDataset([sets["packed columns"], sets["packed dropped"]]))
    loader = DataLoader(ConcatDataset(parts), batch_size=None, num_workers=num_workers)
    expected = [dataset[place] for dataset in parts for place in range(len(dataset))]
    assert [spell(item) for item in loader] == [spell(item) for item in expected]


# What is refused


WRONG: list[tuple[str, dict[str, Any], type[Exception], str]] = [
    ("packed columns", {"labels": "none"}, ValueError, "labels is 'none', expected None, 'next'"),
    ("packed columns", {"labels": "title"}, ValueError, "a column of text"),
    ("packed targets", {"labels": "targets"}, ValueError, "expected 'next' or 'same'"),
    ("packed targets", {"labels": "overlap"}, ValueError, "expected 'next' or 'same'"),
    ("packed columns", {"labels": 3}, TypeError, "labels is 3"),
    ("packed columns", {"columns": ["none"]}, ValueError, "no column 'none'"),
    ("packed", {"columns": ["none"]}, ValueError, "found: no columns"),
    ("packed columns", {"columns": "id"}, TypeError, "columns"),
    ("packed", {"bos_id": 1}, ValueError, "expected None without pairs"),
    ("streams", {"labels": "same"}, ValueError, "streams do not have"),
    ("pairs", {"labels": "same"}, ValueError, "pairs do not have"),
    ("pairs", {"labels": "decoder.targets"}, ValueError, "'decoder.targets'"),
    ("pairs", {"labels": "decoder.title"}, ValueError, "a column of text"),
    ("pairs", {"bos_id": 260}, ValueError, "expected from 0 to 259, the decoder's"),
    ("pairs", {"eos_id": -1}, ValueError, "eos_id is -1"),
]


@pytest.mark.parametrize(("name", "given", "kind", "words"), WRONG)
def test_wrong_arguments_are_refused(
    sets: Sets, name: str, given: dict[str, Any], kind: type[Exception], words: str
) -> None:
    with pytest.raises(kind, match=re.escape(words)):
        ShardDataset(sets[name], **given)


def test_wrong_keys_are_refused(sets: Sets, tmp_path: Path) -> None:
    dataset = ShardDataset(sets["packed columns"])
    number = len(dataset)
    several = ShardDataset([sets["packed columns"], sets["packed dropped"]])
    for wrong in (number, -number - 1, 10**9):
        with pytest.raises(IndexError, match=f"batch {wrong} of {number}"):
            dataset[wrong]
    for wrong in (len(several), -len(several) - 1):
        with pytest.raises(IndexError, match=f"batch {wrong} of {len(several)}"):
            several[wrong]
    for key in ("0", 1.5, None):
        with pytest.raises(TypeError):
            dataset[key]  # type: ignore[index]
    with pytest.raises(ValueError, match="some of the 0 streams"):
        dataset[StreamSlice(0, 0, 1)]
    with pytest.raises(ValueError, match="is of kind int, expected one with classes"):
        dataset.class_names("id")
    with pytest.raises(ValueError, match="no column 'none'"):
        dataset.class_names("none")
    with pytest.raises(ValueError, match="expected at least one folder"):
        ShardDataset([])
    with pytest.raises(FolderError, match="no such folder"):
        ShardDataset(tmp_path / "nowhere")


OTHERS: list[tuple[str, str, dict[str, Any], str]] = [
    ("packed", "padded", {}, "layout is 'padded'"),
    ("packed", "packed ends", {}, "vocab_size|tokenizer_blake3"),
    ("padded left", "padded", {}, "pad_id"),
    ("packed", "packed", {}, "the same shards as"),
    ("packed", "pairs", {"columns": []}, "holds pairs, .* single sequences"),
    ("packed columns", "packed", {}, "no column|column '.*': .* has none"),
    ("packed columns", "packed visits", {}, r"column 'label': .* has class of .*columns="),
    ("streams", "streams 2", {}, "2 streams, .* has 4"),
]


@pytest.mark.parametrize(("first", "second", "given", "words"), OTHERS)
def test_shard_sets_that_differ_are_refused(
    sets: Sets, tmp_path: Path, first: str, second: str, given: dict[str, Any], words: str
) -> None:
    if second == "streams 2":
        options = {"layout": "streams", "max_tokens": 4}
        paths = [make_shards(tmp_path / str(n), batch_size=n, **options) for n in (4, 2)]
    else:
        paths = [sets[first], sets[second]]
    with pytest.raises(ValueError, match=words):
        ShardDataset(paths, **given)


def test_columns_that_differ_may_be_left_out(sets: Sets) -> None:
    names = ["packed columns", "packed visits", "packed"]
    dataset = ShardDataset([sets[name] for name in names], columns=[], labels="next")
    pages = [page for name in names for page in sets.sides(name)[0]]
    for item, page in zip(dataset, pages, strict=True):
        assert spell(item) == expect(page, "next", [])
    chosen = ShardDataset([sets[name] for name in names[:2]], columns=["id", "tags"])
    assert [*chosen.columns] == ["id", "tags"]


def test_wrong_rows_of_a_decoder_are_refused(sets: Sets, tmp_path: Path) -> None:
    decoder = sets.sides("pairs")[1]
    ends = {"bos_id": decoder[0].rows[0][0], "eos_id": decoder[0].rows[0][-1]}
    for name, verb in (("bos_id", "begins"), ("eos_id", "ends")):
        with pytest.raises(ValueError, match=f"row 0 of the decoder {verb} already"):
            ShardDataset(sets["pairs"], **{name: ends[name]})[0]
    records = [
        {"read": "abc", "written": "ab"[: 1 + n % 2], "lang": "x", "number": n} for n in range(3)
    ]
    path = make_pair_shards(tmp_path, records)
    with pytest.raises(ValueError, match=r"sequence 0 of the decoder has 1 token"):
        ShardDataset(path, labels="next")[0]
    assert len(ShardDataset(path, labels="next", eos_id=258)[0].labels) == 4


def test_numbers_too_large_for_labels_are_refused(sets: Sets, tmp_path: Path) -> None:
    path = sets.copy("packed columns", tmp_path)
    change_shard(path, lambda arrays: arrays["column.score"].__setitem__(0, 1e39))
    with pytest.raises(ValueError, match="in the range of float32"):
        ShardDataset(path, labels="score")[0]
    assert ShardDataset(path)[0].columns["score"][0] == 1e39


def test_damage_shows_when_a_batch_is_read(sets: Sets, tmp_path: Path) -> None:
    path = sets.copy("packed files", tmp_path)
    change_shard(path, lambda arrays: arrays["data"].__setitem__(-1, 300), number=1)
    dataset = ShardDataset(path)
    loaded = []
    with pytest.raises(FolderError, match="id 300"):
        loaded.extend(dataset[place] for place in range(len(dataset)))
    assert spell(dataset[0]) == expect(sets.sides("packed files")[0][0])
    moved = pickle.dumps(dataset)
    edit(options={})(path)
    with pytest.raises(FolderError):
        pickle.loads(moved)[0]  # noqa: S301 - our own

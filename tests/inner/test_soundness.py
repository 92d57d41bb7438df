"""The check of a whole shard finds exactly the batches that `check` refuses one by one."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_shards import (
    KINDS,
    Kind,
    draw_batches,
    draw_sequences,
    draw_shard,
    make_shard_in_memory,
)
from shard_reference import Arrays, join_batches

from seqpack_cli.errors import FolderError
from seqpack_cli.limits import LIMITS
from seqpack_cli.shards.layouts import OFFSETS_OF
from seqpack_cli.shards.shard import ARRAYS, Shard
from seqpack_cli.tokens.columns import Column
from seqpack_cli.tokens.kinds import Values
from seqpack_cli.tokens.text_values import TextValues

MAX_ID, PAD_ID = 9, 7

every_kind = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
hostile = st.sampled_from(
    [-(2**63), -(2**63) + 1, -(2**62), -2, -1, 0, 1, 2, 2**31, 2**32, 2**62, 2**63 - 2, 2**63 - 1]
)


COLUMNS = {
    "label": Column("label", "class", ("a", "b")),
    "score": Column("score", "float"),
    "title": Column("title", "text"),
    "tag": Column("tag", "tags", ("x", "y", "z")),
}


def add_columns(shard: Shard, seed: int) -> Shard:
    """Return a shard with columns of any valid values."""
    generator = np.random.default_rng(seed)
    lengths, mask = shard.tensors["lengths"], shard.arrays.mask_tokens()
    is_filler = lengths == 0
    texts = ["" if empty else generator.choice(["é", "ab", ""]) for empty in is_filler]
    found: dict[str, Values] = {
        "label": np.where(is_filler, -100, generator.integers(0, 2, len(lengths))).astype(np.int32),
        "score": np.where(is_filler, 0, generator.normal(size=len(lengths))),
        "title": TextValues.of(texts),
        "tag": np.where(mask, generator.choice([-100, 0, 1, 2], len(mask)), -100).astype(np.int32),
    }
    arrays = [COLUMNS[name].make_arrays(values) for name, values in found.items()]
    tensors = {**shard.tensors, **{name: each[name] for each in arrays for name in each}}
    other = shard.with_tensors(tensors, COLUMNS)
    other.arrays.check_offsets()
    return other


def slow_unsound(shard: Shard) -> list[bool]:
    """Read every batch."""
    found = []
    for index in range(len(shard)):
        try:
            shard[index]
        except FolderError:
            found.append(True)
        else:
            found.append(False)
    return found


def draw(kind: Kind, seed: int, dtype: str = "uint16") -> Shard:
    generator = random.Random(seed)
    sequences = draw_sequences(generator, dtype=dtype, max_id=MAX_ID)
    batches = draw_batches(kind, sequences, generator, pad_id=PAD_ID)
    geometry = kind.make_geometry(PAD_ID)
    tensors = join_batches(kind.layout, batches, geometry)
    ARRAYS[kind.layout](tensors, geometry).check_offsets()
    return make_shard_in_memory(kind, tensors, pad_id=PAD_ID, max_id=MAX_ID)


@st.composite
def damages(data: st.DrawFn, tensors: Arrays) -> Arrays:
    """Change one to three entries, including offsets as long as they stay valid."""
    changed = {name: array.copy() for name, array in tensors.items()}
    for _ in range(data(st.integers(1, 3))):
        array = changed[data(st.sampled_from([*changed]))]
        place, other = (data(st.integers(0, len(array) - 1)) for _ in range(2))
        way = data(st.sampled_from(["nearby", "hostile", "swapped", "copied", "taken"]))
        limits = np.iinfo(array.dtype)
        if way == "nearby":
            value = int(array[place]) + data(st.integers(-2, 2))
            array[place] = min(max(value, limits.min), limits.max)
        elif way == "hostile":
            array[place] = min(max(data(hostile), limits.min), limits.max)
        elif way == "swapped":
            array[[place, other]] = array[[other, place]]
        elif way == "copied":
            array[place] = array[other]
        elif array[place] > limits.min and array[other] < limits.max:  # the sum stays
            array[place] -= 1
            array[other] += 1
    return changed


@every_kind
@settings(max_examples=35)
@given(seed=st.integers(0, 10**6), dtype=st.sampled_from(["uint16", "int32"]), data=st.data())
def test_unsound_batches_are_those_that_check_refuses(
    kind: Kind, seed: int, dtype: str, data: st.DataObject
) -> None:
    sound = draw(kind, seed, dtype)
    shard = sound.with_tensors(data.draw(damages(sound.tensors)))
    try:
        shard.arrays.check_offsets()
    except ValueError:
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LIMITS, "ids_per_block", data.draw(st.sampled_from([1, 9, 1 << 20])))
        assert shard.find_unsound().tolist() == slow_unsound(shard)


@every_kind
def test_wrong_values_of_columns_are_unsound(kind: Kind) -> None:
    """In the whole shard, in a single batch, and as the batches of an epoch are taken."""
    sound = add_columns(draw(kind, 2), 2)
    assert sound.find_unsound().tolist() == [False] * len(sound) == slow_unsound(sound)
    num_wrong = 0
    for name in ("column.label", "column.tag", "column.title", "column.score"):
        places = np.linspace(0, len(sound.tensors[name]) - 1, 5).astype(int).tolist()
        for place in places:
            for value in (-101, -100, 0, 2, 3, np.nan, 200):
                array = sound.tensors[name].copy()
                if not np.can_cast(np.min_scalar_type(value), array.dtype):
                    continue
                array[place] = value
                shard = sound.with_tensors({**sound.tensors, name: array})
                found = slow_unsound(shard)
                assert shard.find_unsound().tolist() == found, (name, place, value)
                taken = shard.with_tensors(shard.tensors)
                assert [is_refused(taken.take, index) for index in range(len(taken))] == found
                num_wrong += any(found)
    assert num_wrong > 10


def is_refused(read: Callable[[int], object], index: int) -> bool:
    """Return whether a batch is refused."""
    try:
        read(index)
    except FolderError:
        return True
    return False


@every_kind
@pytest.mark.parametrize(
    "values", [(2**62, 2**62, 2**62, 2**62), (-(2**63), -(2**63)), (2**63 - 1, -(2**63), 1)]
)
def test_sums_that_wrap_around_are_unsound(kind: Kind, values: tuple[int, ...]) -> None:
    for seed in range(1, 3):
        sound = draw(kind, seed)
        for name, array in sound.tensors.items():
            if name in OFFSETS_OF.values() or len(array) < len(values) or name == "data":
                continue
            for place in range(len(array) - len(values) + 1):
                changed = array.copy()
                changed[place : place + len(values)] = values
                shard = sound.with_tensors({**sound.tensors, name: changed})
                assert shard.find_unsound().tolist() == slow_unsound(shard), (seed, name, place)


def test_false_huge_counts_take_no_memory() -> None:
    import tracemalloc

    for kind in KINDS.values():
        sound, _ = draw_shard(kind, 1)
        for name in set(sound.tensors) - {*OFFSETS_OF.values(), "data"}:
            changed = {**sound.tensors, name: np.full_like(sound.tensors[name], 2**40)}
            tracemalloc.start()
            sound.with_tensors(changed).find_unsound()
            assert tracemalloc.get_traced_memory()[1] < 1 << 20
            tracemalloc.stop()

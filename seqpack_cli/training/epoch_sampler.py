"""A torch Sampler with a state: an order of batches for every epoch and rank, which can be resumed.

The order of an epoch depends on the seed and the epoch's number alone. The state holds how many
steps were taken, and how they were dealt to how many ranks. From it the rest of the epoch is
computed without reading a batch, also for another number of ranks or other options.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from torch.utils.data import ConcatDataset, Sampler, Subset

from seqpack_cli.batching.order import epoch_seed
from seqpack_cli.runs.options import checks_arguments
from seqpack_cli.training.combined_batches import find_batches
from seqpack_cli.training.dealing import NO_BATCH, Dealing, SamplerOptions, deal_epoch
from seqpack_cli.training.epoch_plan import EpochBatches, EpochPlan
from seqpack_cli.training.ranks import find_rank
from seqpack_cli.training.sampler_state import SamplerState
from seqpack_cli.training.tracked_loader import TrackedLoader


class EpochSampler(Sampler[Any]):
    """Yield the batches of one rank, epoch after epoch; a pass yields the rest of an epoch.

    Use it as `DataLoader(dataset, batch_size=None, sampler=sampler)`, and iterate over
    `sampler.track(loader)`: then `state_dict` is the position of the training loop. Without `track`
    it is the position of the loader, which with `num_workers` is ahead of the loop.

    Args:
        batches: a ShardDataset, a torch Subset or ConcatDataset of them, or StoreBatches (the
            sampler is then the loader's `batch_sampler`).
        seed: the order of an epoch follows from it and the number of the epoch.
        shuffle: False keeps the order of the data, as streams must be read.
        rank, world_size: this process, and the number of processes; None asks torch.distributed,
            and is 0 and 1 if that is not initialized. Every rank gets the same number of batches,
            except with `SamplerOptions(repeat=False)`. Of streams it gets its share of each batch.
        options: how the batches are dealt to the ranks.

    Raises:
        TypeError: batches is something else.
        ValueError: there is no such rank, or no batch that options names, or a number is out of
            range, or an option conflicts with streams.
    """

    @checks_arguments
    def __init__(
        self,
        batches: EpochBatches | Subset[Any] | ConcatDataset[Any],
        *,
        seed: int = 0,
        shuffle: bool = True,
        rank: int | None = None,
        world_size: int | None = None,
        options: SamplerOptions | None = None,
    ) -> None:
        self.batches, self.seed, self.shuffle = find_batches(batches), seed, shuffle
        self.rank, num_ranks = find_rank(rank, world_size)
        self._dealing = Dealing(num_ranks, options or SamplerOptions())
        if self._dealing.options.skip and not self.batches.is_fixed:
            raise ValueError("skip needs shards: a token store has new batches in each epoch")
        self._is_tracked = False
        self._begin(0, [])
        epoch_seed(self.seed, 0)  # raises ValueError for a wrong seed
        if self.batches.is_fixed:
            self._dealing.check(self._make_plan())

    def __repr__(self) -> str:
        order = f"seed={self.seed}, shuffle={self.shuffle}, epoch={self.epoch}"
        ranks = f"rank={self.rank}, world_size={self._dealing.world_size}"
        return f"EpochSampler({self.batches!r}, {order}, {ranks})"

    @property
    def epoch(self) -> int:
        """The number of the current epoch, from 0; `set_epoch` changes it."""
        return self._epoch

    @property
    def epoch_seed(self) -> int | None:
        """The seed of this epoch, with which `pack` makes the batches of StoreBatches, or None."""
        return epoch_seed(self.seed, self._epoch) if self.shuffle else None

    def __iter__(self) -> Iterator[Any]:
        self._settle()
        plan, steps, change = self._make_plan(), self._make_steps(), self._change
        for number in steps[self._num_taken :, self.rank].tolist():
            if number == NO_BATCH:
                break
            if not self._is_tracked:
                self._num_taken += 1
            yield plan.find_key(number, self.rank, self._dealing.world_size)
            if self._change is not change:
                return
        if not self._is_tracked and not len(self):
            self._begin_next()

    def __len__(self) -> int:
        """Return the number of batches left for this rank in this epoch."""
        num_steps = self._count_steps_left()
        return num_steps - bool(num_steps and self._make_steps()[-1, self.rank] == NO_BATCH)

    def track(self, loader: Any) -> TrackedLoader:
        """Return an iterable over a loader's batches that counts them for this sampler.

        A DataLoader that fetches several batches at a time (`batch_size=16, collate_fn=list`)
        yields them one by one.

        Raises:
            ValueError: a DataLoader that has another sampler, another dataset than that of the
                sampler's batches, or in_order=False.
        """
        return TrackedLoader(self, self.batches, loader, self._count_given)

    def count_steps(self) -> int:
        """Count the batches of this whole epoch for one rank; a store's vary with the epoch."""
        return self._dealing.count_batches(self._make_plan(), self.rank)

    def set_epoch(self, epoch: int) -> None:
        """Go to the beginning of an epoch; nothing changes if it is the current one.

        Call it as for torch's DistributedSampler, after `load_state_dict` too.
        """
        epoch = operator.index(epoch)
        if epoch < 0:
            raise ValueError(f"epoch is {epoch}, expected at least 0")
        if epoch != self._epoch:
            self._begin(epoch, [])

    def peek(self, num_steps: int) -> np.ndarray:
        """Return the numbers of the next batches of all ranks, int64[steps, world_size].

        With `SamplerOptions(repeat=False)`, -1 stands for no batch in the last step.
        """
        if num_steps < 0:
            raise ValueError(f"num_steps is {num_steps}, expected at least 0")
        return self._make_steps()[self._num_taken :][:num_steps].copy()

    def skip_steps(self, num_steps: int) -> None:
        """Skip the next steps of this epoch on every rank, for example after a loss spike.

        A loop over the loader ends; the next one yields what is left.
        """
        num_left = self._count_steps_left()
        if not 0 <= num_steps <= num_left:
            raise ValueError(f"num_steps is {num_steps}, expected 0 to {num_left} in this epoch")
        self._num_taken += operator.index(num_steps)
        self._change = object()

    def state_dict(self) -> dict[str, Any]:
        """Return the position as numbers, strings and lists, the same on every rank.

        After the last batch of an epoch it is the beginning of the next one.
        """
        is_over = self._num_taken > 0 and not self._count_steps_left()
        taken = [] if is_over else [*self._taken]
        if self._num_taken and not is_over:
            taken.append(replace(self._dealing, num_steps=self._num_taken))
        epoch = self._epoch + is_over
        fingerprint = self.batches.fingerprint
        return SamplerState(fingerprint, self.seed, self.shuffle, epoch, taken).to_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue at the position of a sampler of any rank and any number of ranks.

        Seed and shuffle become those of the state; batches already taken stay taken, and the rest
        of the epoch is dealt with the ranks and options of this sampler.

        Raises:
            ValueError: the state is of other batches, or no state of a sampler; nothing changes.
        """
        found = SamplerState.from_dict(state, batches=self.batches.fingerprint)
        before, taken = vars(self).copy(), found.taken
        self.seed, self.shuffle = found.seed, found.shuffle
        self._begin(found.epoch, taken)
        if taken and taken[-1].is_like(self._dealing):  # dealt as before: continue its count
            self._taken, self._num_taken = taken[:-1], taken[-1].num_steps
        try:
            if self._count_steps_left() < 0:
                raise ValueError(f"the state has {self._num_taken} steps, the epoch has fewer")
        except ValueError:
            vars(self).update(before)
            raise
        self._settle()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_plan": None, "_steps": None}  # they are made again

    def _count_given(self, batches: Iterator[Any], drops_last: bool) -> Iterator[Any]:
        """Yield the batches of one pass over the loader, and count them."""
        self._settle()
        self._is_tracked, change, was_given, is_over = True, self._change, False, False
        try:
            for batch in batches:
                self._num_taken += 1
                was_given = True
                yield batch
                if self._change is not change:
                    return
            # if not the last: the loader gives nothing, or drops the rest of the epoch
            is_over = drops_last or not was_given or not len(self)
        finally:
            self._is_tracked = False
            if is_over:
                self._begin_next()
            elif self._steps is not None:
                self._settle()

    def _begin(self, epoch: int, taken: list[Dealing]) -> None:
        self._epoch = epoch
        self._taken, self._num_taken = taken, 0  # in this epoch: earlier, and from now on
        self._plan: EpochPlan | None = None
        self._steps: np.ndarray | None = None
        self._change = object()  # ends the iterators that were started before

    def _begin_next(self) -> None:
        self._begin(self._epoch + 1, [])

    def _settle(self) -> None:
        """Begin the next epoch if no rank has a batch left in this one."""
        if not self._count_steps_left():
            self._begin_next()

    def _count_steps_left(self) -> int:
        return len(self._make_steps()) - self._num_taken

    def _make_plan(self) -> EpochPlan:
        if self._plan is None:
            self._plan = self.batches.plan_epoch(self.epoch_seed)
        return self._plan

    def _make_steps(self) -> np.ndarray:
        """Deal the rest of the epoch, int64[steps, world_size]."""
        if self._steps is None:
            self._steps = deal_epoch(
                self._make_plan(),
                [*self._taken, self._dealing],
                seed=self.epoch_seed,
                is_start=self._epoch == 0,
            )
        return self._steps

"""A torch Sampler that knows where it stands: an order for every epoch and rank, to be continued.

The order of an epoch follows from the seed and the epoch's number alone. What was taken of it is a
few lines: so many steps, dealt in this way to so many ranks. From them the rest of the epoch
follows without reading a batch, for another number of ranks or another way of dealing too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import torch.distributed
from torch.utils.data import BatchSampler, Sampler

from seqpack_cli.batching.shuffle import epoch_seed
from seqpack_cli.training.dealing import Dealing
from seqpack_cli.training.epoch_plan import EpochBatches, EpochPlan


class EpochSampler(Sampler[Any]):
    """Give the batches of one rank, epoch after epoch; iterating gives the rest of an epoch.

    Use it as `DataLoader(dataset, batch_size=None, sampler=sampler)`, and go through that loader as
    `sampler.track(loader)`: then `state_dict` says how far the training loop is. Without `track` it
    says how far the loader is, which with `num_workers` is ahead of the loop.

    Args:
        batches: a ShardDataset, or StoreBatches (the sampler is then the loader's `batch_sampler`).
        seed: with the number of the epoch it makes the order.
        shuffle: False leaves the batches in the order of the data.
        rank, world_size: this process, of how many; None asks torch.distributed, and takes 0 of 1
            where that is not initialized. Every rank gets the same number of batches.
        drop_last: the last batches of an epoch, if fewer than the ranks, are left out; else as many
            as lack are repeated from the beginning.
        balance: give the ranks batches of about the same number of cells at each step.
        skip: numbers of batches of shards to leave out.
        longest_first: begin epoch 0 with the batches of most cells, one for each rank, so that a
            memory that is too small shows at once.

    Raises:
        ValueError: a rank or a number to skip that is not there.
    """

    def __init__(
        self,
        batches: EpochBatches,
        *,
        seed: int = 0,
        shuffle: bool = True,
        rank: int | None = None,
        world_size: int | None = None,
        drop_last: bool = False,
        balance: bool = False,
        skip: Iterable[int] = (),
        longest_first: bool = False,
    ) -> None:
        found_rank, found_world_size = _find_rank()
        self.batches, self.seed, self.shuffle = batches, seed, shuffle
        self.rank = found_rank if rank is None else rank
        world_size = found_world_size if world_size is None else world_size
        if not 0 <= self.rank < world_size:
            raise ValueError(f"rank is {self.rank}, expected one of {world_size} from 0")
        self._dealing = Dealing(
            world_size, drop_last, balance, longest_first, tuple(sorted(set(skip)))
        )
        self._is_tracked = False
        self._begin(0, [])
        self._check()

    def __iter__(self) -> Iterator[Any]:
        keys, steps = self._make_plan().keys, self._make_steps()
        for number in steps[self._num_taken :, self.rank].tolist():
            if not self._is_tracked:
                self._num_taken += 1
            yield keys[number]
        if not self._is_tracked:
            self._begin(self.epoch + 1, [])

    def __len__(self) -> int:
        """Count the batches that this rank is still given in this epoch."""
        return len(self._make_steps()) - self._num_taken

    def track(self, loader: Any) -> TrackedLoader:
        """Give the loader back as an iterable that tells this sampler what the loop was given.

        A DataLoader that fetches several batches at a time (`batch_size=16, collate_fn=list`) gives
        them one by one.
        """
        self._is_tracked = True
        return TrackedLoader(self, loader)

    def set_epoch(self, epoch: int) -> None:
        """Go to the beginning of an epoch, as torch's DistributedSampler does.

        In the epoch where the sampler is, after `load_state_dict` too, it changes nothing.
        """
        if epoch < 0:
            raise ValueError(f"epoch is {epoch}, expected at least 0")
        if epoch != self.epoch:
            self._begin(epoch, [])

    def peek(self, num_steps: int) -> np.ndarray:
        """Give the numbers of the batches that come next, int64[steps, world_size]."""
        return self._make_steps()[self._num_taken :][:num_steps].copy()

    def skip_steps(self, num_steps: int) -> None:
        """Leave out the next steps of this epoch on every rank, as after a spike of the loss.

        Call it while nobody iterates.
        """
        if not 0 <= num_steps <= len(self):
            raise ValueError(f"{num_steps} steps to skip, {len(self)} are left in this epoch")
        self._num_taken += num_steps

    def state_dict(self) -> dict[str, Any]:
        """Say where the sampler stands, in numbers, strings and lists: the same on every rank."""
        taken = [*self._taken]
        if self._num_taken:
            taken.append(replace(self._dealing, num_steps=self._num_taken))
        return {
            "batches": self.batches.fingerprint,
            "seed": self.seed,
            "shuffle": self.shuffle,
            "epoch": self.epoch,
            "taken": [{**asdict(dealing), "skip": [*dealing.skip]} for dealing in taken],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Stand where a sampler stood, of any rank and any number of ranks.

        Seed and shuffle become those of the state; what was taken stays taken, and the rest of the
        epoch is dealt as this sampler was told.

        Raises:
            ValueError: the state is of other batches.
        """
        if state["batches"] != self.batches.fingerprint:
            raise ValueError("the state is of other shards, or of a store packed otherwise")
        taken = [
            Dealing(**{**dealing, "skip": tuple(dealing["skip"])}) for dealing in state["taken"]
        ]
        self.seed, self.shuffle = state["seed"], state["shuffle"]
        self._begin(state["epoch"], taken)

    def count_one(self) -> None:
        """Count one batch more that the loop was given; the tracked loader calls this."""
        self._num_taken += 1

    def end_epoch(self) -> None:
        """Go on to the next epoch; the tracked loader calls this at its end."""
        self._begin(self.epoch + 1, [])

    def _begin(self, epoch: int, taken: list[Dealing]) -> None:
        self.epoch = epoch
        self._taken, self._num_taken = taken, 0  # before now, and since, in this epoch
        self._plan: EpochPlan | None = None
        self._steps: np.ndarray | None = None

    def _make_plan(self) -> EpochPlan:
        if self._plan is None:
            self._plan = self.batches.plan_epoch(self._seed_of_epoch())
        return self._plan

    def _make_steps(self) -> np.ndarray:
        """Deal the rest of the epoch, int64[steps, world_size]."""
        if self._steps is None:
            plan, seed = self._make_plan(), self._seed_of_epoch()
            rest, is_start = plan.order, self.epoch == 0
            for dealing in self._taken:
                rest = dealing.leave(plan, rest, seed=seed, is_start=is_start)
                is_start = False
            self._steps = self._dealing.deal(plan, rest, seed=seed, is_start=is_start)
        return self._steps

    def _check(self) -> None:
        epoch_seed(self.seed, 0)
        skip = self._dealing.skip
        if not skip:
            return
        if not self.batches.is_fixed:
            raise ValueError("skip names batches, but those of a token store are new in each epoch")
        num_batches = len(self._make_plan().keys)
        for number in (skip[0], skip[-1]):
            if not 0 <= number < num_batches:
                raise ValueError(f"batch {number} to skip, expected one of {num_batches} from 0")

    def _seed_of_epoch(self) -> int | None:
        return epoch_seed(self.seed, self.epoch) if self.shuffle else None


class TrackedLoader:
    """A loader whose sampler knows what the training loop was given; see EpochSampler.track."""

    def __init__(self, sampler: EpochSampler, loader: Any) -> None:
        self.sampler = sampler
        self.loader = loader

    def __iter__(self) -> Iterator[Any]:
        # torch's own BatchSampler over ours: an item is a list of batches
        is_group = isinstance(getattr(self.loader, "batch_sampler", None), BatchSampler)
        for item in self.loader:
            for batch in item if is_group else [item]:
                self.sampler.count_one()
                yield batch
        self.sampler.end_epoch()

    def __len__(self) -> int:
        """Count the batches that are left in this epoch."""
        return len(self.sampler)


def _find_rank() -> tuple[int, int]:
    """Give the rank of this process and the number of ranks, as torch.distributed has them."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank(), torch.distributed.get_world_size()
    return 0, 1

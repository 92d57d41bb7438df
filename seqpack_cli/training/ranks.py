"""The rank of this process among those that train together, and their number."""

from __future__ import annotations

import torch.distributed

from seqpack_cli.errors import check_positive

MAX_RANKS = 2**20  # a step of all ranks takes 8 bytes for each


def find_rank(rank: int | None, world_size: int | None) -> tuple[int, int]:
    """Return the rank and the number of ranks.

    Args:
        rank, world_size: None asks torch.distributed; without it they are 0 and 1.

    Raises:
        ValueError: there is no such rank, or there are too many.
    """
    found_rank, found_world_size = _find_group()
    rank = found_rank if rank is None else rank
    world_size = found_world_size if world_size is None else world_size
    if not 0 <= rank < world_size:
        raise ValueError(f"rank is {rank}, expected 0 or more, below {world_size}")
    check_positive("world_size", world_size, at_most=MAX_RANKS)
    return rank, world_size


def _find_group() -> tuple[int, int]:
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank(), torch.distributed.get_world_size()
    return 0, 1

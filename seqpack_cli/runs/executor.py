"""Where the tasks of a run are done; `workers` does them there."""

from __future__ import annotations

import os
from dataclasses import dataclass

from seqpack_cli.errors import OptionError, check_choice, check_positive
from seqpack_cli.runs.arguments import check_fields

EXECUTORS = ("local", "ray")


@dataclass(frozen=True)
class Executor:
    """Where the tasks of a run are done, and how many at a time.

    Args:
        name: "local" for processes of this machine, or "ray" for a Ray cluster.
        ray_address: the cluster; None finds a running one, or starts one on this machine.
        num_workers: tasks at a time; None is one per core, or fewer if the work is not worth it. 1
            works in this process, so a script needs no `if __name__ == "__main__":` unless it reads
            Parquet, whose footers are checked in a separate process.

    Raises:
        ValueError: name is neither, or num_workers is out of range.
        OptionError: ray_address is set, and name is not "ray".
        MachineError: Ray is not installed.
    """

    name: str = "local"
    ray_address: str | None = None
    num_workers: int | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        check_choice("name", self.name, EXECUTORS)
        check_positive("num_workers", self.num_workers)
        if self.name == "ray":
            from seqpack_cli.runs.ray_cluster import check_installed

            check_installed()
        elif self.ray_address is not None:
            raise OptionError("--ray-address needs --executor ray")


def count_cores() -> int:
    """Return the number of cores that this process may use, which may be fewer than there are."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1

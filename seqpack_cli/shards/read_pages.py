"""What was read of mapped shards and is still in memory, until it is released."""

from __future__ import annotations

from seqpack_cli.files.mapping import let_pages_go
from seqpack_cli.shards.shard import Shard


class ReadPages:
    """What `take` has read of mapped shards since their pages were released."""

    def __init__(self) -> None:
        self.num_bytes = 0
        self.shards: set[Shard] = set()

    def release(self) -> None:
        """Release the pages from this process; they stay in the system's cache."""
        self.num_bytes = 0
        shards, self.shards = self.shards, set()
        for shard in tuple(shards):  # copied in one step: other threads may still add some
            let_pages_go(shard.tensors["data"])

"""How much is worked on at a time: sizes of blocks, pieces, caches and windows.

None of them changes what is written or found, however small: they trade memory for speed. (A block
of rows is also a row group of a Parquet file.) They are fields of one object, `LIMITS`, read when
they are needed, so that tests can set them to a few entries and walk over every border between two
pieces. Worker processes are given the values of the process that starts them.
"""

from __future__ import annotations


class Limits:
    """Sizes that bound the memory of a step, at least 1 each."""

    default_workers: int | None = None
    """Worker processes of a run that is not told how many; None is one per core."""
    footer_workers: int = 1
    """Processes that read footers of Parquet files; with 0 this process does, and may crash."""

    # Files and objects

    read_bytes: int = 1 << 20
    """Bytes of a file that are read, hashed or decompressed at a time: they stay in the cache."""
    seek_bytes: int = 64 << 10
    """Bytes that are read where only a few are needed, so that an object gets fewer requests."""
    range_bytes: int = 8 << 20
    """Bytes of an object for each request, which takes 20 to 50 ms, whatever its size."""
    objects_listed: int = 500
    """Objects named in one folder from which listing it takes fewer requests."""
    spool_bytes: int = 8 << 20
    """Bytes of a part's texts that wait in memory; more go to a temporary file."""
    mapped_files: int = 16_384
    """Files that one reader keeps mapped: Linux allows a process 65,530 maps."""
    mapped_bytes: int = 256 << 20
    """Bytes of mapped shards in memory before their pages are released."""
    mapped_bytes_of_worker: int = 2 << 20
    """The same in a worker of a DataLoader: there may be many."""
    store_bytes_of_worker: int = 16 << 20
    """The same for token stores: each row maps 64 KiB around it, and a batch has many."""
    mapped_ids: int = 1 << 25
    """Ids that a scan of a whole token store reads before their pages are released."""

    # Records and texts

    batch_bytes: int = 1 << 20
    """Bytes of text that are decoded, converted or encoded at a time."""
    rows_per_batch: int = 1 << 12
    """Rows of a table in a batch, however short: a table stores repeated values once."""
    json_bytes: int = 1 << 16
    """Bytes of JSON lines that are parsed at a time: larger arrays cost page faults."""
    texts_per_write: int = 1 << 10
    """Texts, or pieces of one, that are joined before they are written."""

    # Sequences

    sequences_per_block: int = 1 << 16
    """Sequences, texts or ranges that are converted to Python objects at a time."""
    rows_per_block: int = 1 << 20
    """Rows that are sorted by length, or cut into batches, at a time."""
    rows_per_range: int = 1 << 22
    """Rows in length order that are found in one pass over the lengths: 100 MB at most."""
    parts_per_task: int = 16
    """Parts of a store that one task counts: some seconds of reading."""
    batches_per_check: int = 256
    """Batches of a shard that are checked together: a few MB, and no pause at the first one."""

    # Ids and other numbers

    ids_per_block: int = 1 << 20
    """Ids, or cells, that are read, compared or checked together, with a byte to 8 for each."""
    ids_per_export: int = 1 << 22
    """Ids of a block that is exported: 16 MB."""
    entries_per_block: int = 1 << 18
    """Numbers that are counted, copied or written together: with their places, in the L2 cache."""
    entries_in_cache: int = 1 << 16
    """Numbers that are changed in several steps, 8 bytes each: they stay in the L1 or L2 cache."""
    hashes_per_group: int = 1 << 23
    """Hashes of documents that are sorted together with their splits, 28 bytes each."""
    hashes_per_range: int = 1 << 24
    """Hashes of documents that are sorted alone, 8 bytes each; twice that while they are read."""
    table_lengths: int = 1 << 16
    """Lengths below this have an entry of a table each; longer ones are sorted and searched."""
    table_ids: int = 1 << 20
    """Ids up to this are counted in a table; among larger ones each is searched."""
    bounds_compared: int = 16
    """Bounds of splits up to which comparing with each, at 1 ns, is faster than a search."""

    # Ranges of a flat array: see `ranges`

    long_range: int = 128
    """Entries from which a range is copied by itself."""
    longest_window: int = 1 << 12
    """Entries above which a range is copied by itself, however many have its length."""
    ranges_per_length: int = 60
    """Ranges of one length from which they are copied together."""

    # Time steps: see `shards.time_steps`

    ids_per_piece: int = 1 << 19
    """Ids whose runs are found together, in 0.2 ms."""
    ids_per_run: int = 256
    """Ids of a run, on average, from which it is worth looking at the runs."""
    ids_per_copy: int = 512
    """Ids from which transposing a rectangle is faster than the places of its ids."""

    # Tensors

    inline_bytes: int = 1 << 20
    """Bytes up to which a tensor is sent to another process through the pipe."""
    large_tensor: int = 1 << 15
    """Elements from which a tensor is compared by itself."""
    cells_on_gpu: int = 1 << 22
    """Cells of batches that are sent to a GPU and checked there together."""
    runs_per_fetch: int = 64
    """Batches whose results are fetched from a GPU together."""


LIMITS = Limits()


def set_limits(values: Limits) -> None:
    """Set the limits of this process to the values of another one."""
    LIMITS.__dict__ = dict(vars(values))  # those that differ from the class

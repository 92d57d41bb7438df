"""Recognise the Parquet files that a command of seqpack wrote.

The footer of such a file names seqpack as its writer and has a mark of the command, which repeats
the number of rows. A file that another program wrote from it, mark included, names that program.
"""

from __future__ import annotations

import io

from seqpack_cli.errors import FolderError
from seqpack_cli.files.json_files import check_fields, parse_json
from seqpack_cli.files.outputs import FileKind
from seqpack_cli.shards.exports.parquet_files import MARK, WRITER, import_pyarrow

FOOTER_BYTES = 8 << 20  # 300 GB of ids have a smaller footer
MARK_FIELDS = {"format": str, "num_rows": int}


def make_kind(command: str) -> FileKind:
    """Return the kind of Parquet files that a command writes."""
    return FileKind(
        f"a Parquet file that seqpack {command} wrote",
        lambda tail: _is_written(tail, MARK.format(command=command)),
        max_bytes=FOOTER_BYTES,
        at_end=True,
    )


def _is_written(tail: bytes, mark: str) -> bool:
    """Return whether the last bytes of a file are those of a file with this mark."""
    pa = import_pyarrow("output")
    try:
        footer = pa.parquet.read_metadata(io.BytesIO(tail))
        metadata = footer.metadata or {}
        if not footer.created_by.startswith(WRITER) or [*metadata] != [mark.encode()]:
            return False
        found = parse_json(metadata[mark.encode()], source=mark)
        check_fields(found, MARK_FIELDS, source=mark)
    except (pa.ArrowException, OSError, ValueError, FolderError):
        return False
    return (found["format"], found["num_rows"]) == (mark, footer.num_rows)

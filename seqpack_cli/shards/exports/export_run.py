"""Write a token store or shards as files that other trainers read."""

from __future__ import annotations

from typing import Any

from seqpack_cli.errors import OptionError, check_choice
from seqpack_cli.files.objects import AnyPath
from seqpack_cli.runs.options import checks_arguments
from seqpack_cli.runs.workers import Progress
from seqpack_cli.shards.exports.formats import FORMATS, write_format
from seqpack_cli.shards.exports.task import Task, open_exported


@checks_arguments
def export(
    path: AnyPath,
    output: AnyPath,
    *,
    to: str = "parquet",
    eos: int | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Write a token store or shards as files that other trainers read.

    Every file is read back and compared with the source before it is published.

    Args:
        path: the folder of the store or the shards.
        output: a folder for `parquet`, a prefix for `megatron`, a file for `nanogpt`.
        to: "parquet", "megatron" or "nanogpt".
        eos: the end token of `nanogpt`; None is that of the tokenizer.
        overwrite: replace files that an earlier `export` wrote.

    Returns:
        The counts: `num_tokens`, and those that the format has; `files` is the list of names,
        and `record` that of the record beside them, which `parquet` does not have.

    Raises:
        FolderError: the source is damaged, or other files would be replaced.
        MachineError: the disk is full or fails, or pyarrow is missing.
        OptionError: the format cannot hold what is to be exported, as none holds pairs.
    """
    check_choice("to", to, FORMATS)
    if eos is not None and to != "nanogpt":
        raise OptionError(
            f"--eos has no effect on --to {to}", hint="leave out --eos, or pass --to nanogpt"
        )
    task = Task(open_exported(path), output, overwrite, eos, progress or Progress())
    return {"format": to, **write_format(to, task)}

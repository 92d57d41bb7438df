"""`seqpack verify`: open shards, or the shards of several splits, and verify them."""

from __future__ import annotations

from seqpack_cli.files.manifest import FORMAT_OF_SPLITS, find_format
from seqpack_cli.files.objects import AnyPath
from seqpack_cli.files.places import parse_place
from seqpack_cli.runs.options import takes_options
from seqpack_cli.runs.workers import Progress
from seqpack_cli.shards.shard_set import open_shards
from seqpack_cli.shards.split_set import open_splits
from seqpack_cli.verification.device import open_device
from seqpack_cli.verification.options import VerifyOptions
from seqpack_cli.verification.report import PairsReport, Report, SplitsReport
from seqpack_cli.verification.user_models.load_function import load_function
from seqpack_cli.verification.verify_pairs import verify_pairs
from seqpack_cli.verification.verify_shards import find_packed_stores, verify_shards
from seqpack_cli.verification.verify_splits import verify_splits


@takes_options(options=VerifyOptions)
def verify(
    shards: AnyPath, options: VerifyOptions | None = None, *, progress: Progress | None = None
) -> Report | PairsReport | SplitsReport:
    """Verify shards against their token stores on a device, as `seqpack verify` does.

    Args:
        shards: the shards' folder, or the folder that `pack --split` wrote.
        progress: what to call with the steps done and notices.

    Returns:
        What was checked and what was found; `passed` if there are no findings. Of pairs a
        `PairsReport`, which has a `Report` for each side; of a folder of splits a `SplitsReport`,
        which has one for each split.

    Raises:
        FolderError: the shards are incomplete or not shards, or a token store is missing or
            another one.
        MachineError: the device is missing, fails, or is out of memory.
        OptionError: there is no such function as `model` or `call`, or it does not do what it
            should; or there is a `model`, and the shards hold pairs.
        ModelError: your own model raised an exception.
    """
    options, progress, place = (
        options or VerifyOptions(),
        progress or Progress(),
        parse_place(shards),
    )
    for name, function in (("--model", options.model), ("--call", options.call)):
        if function is not None:  # one that is missing is found before anything is read
            load_function(name, function)
    if find_format(place) == FORMAT_OF_SPLITS:
        splits = open_splits(place, check_present=False)
        return verify_splits(splits, options, open_device(options.device), progress)
    opened = open_shards(place, check_present=False)
    device = open_device(options.device)
    packed = find_packed_stores(opened, options)
    if opened.decoder is not None:
        return verify_pairs(opened, packed, options, device, progress)[0]
    return verify_shards(opened, packed[0], options, device, progress).report

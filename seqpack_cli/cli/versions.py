"""`seqpack --version`: the versions that a bug report needs, without importing the packages."""

from __future__ import annotations

import platform
import sys

import click

from seqpack_cli import __version__

# Required packages, then those of the extras.
PACKAGES = ("torch", "numpy", "tokenizers", "safetensors", "blake3", "xxhash", "click", "tqdm")
EXTRAS = ("fastokens", "orjson", "pyarrow", "backports.zstd", "matplotlib", "jinja2")
if sys.version_info >= (3, 14):  # zstd is part of the standard library
    EXTRAS = tuple(name for name in EXTRAS if name != "backports.zstd")


def list_versions() -> list[str]:
    """Return the versions of seqpack, Python and the packages, one per line."""
    system = f"{platform.system()} {platform.machine()}"
    return [
        f"seqpack, version {__version__}",
        f"python {platform.python_version()}, {system}",
        *(f"{name} {_find_version(name)}" for name in (*PACKAGES, *EXTRAS)),
    ]


def show_versions(ctx: click.Context, _: click.Parameter, is_asked: bool) -> None:
    """Print the versions and exit, as click's own option does."""
    if is_asked and not ctx.resilient_parsing:
        click.echo("\n".join(list_versions()))
        ctx.exit()


def _find_version(name: str) -> str:
    from importlib import metadata  # takes 20 ms, so not at the top

    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "not installed"

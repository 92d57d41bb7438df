"""`seqpack --version`: the versions that a report of a fault needs, without importing anything."""

from __future__ import annotations

import platform

import click

from seqpack_cli.runs.version import __version__

# Those that every user has, then those of the extras.
PACKAGES = ("torch", "numpy", "tokenizers", "safetensors", "blake3", "click", "tqdm")
EXTRAS = ("fastokens", "orjson", "pyarrow", "backports.zstd", "matplotlib", "jinja2")


def list_versions() -> list[str]:
    """Name this program, Python, the system and the packages, one a line."""
    system = f"{platform.system()} {platform.machine()}"
    return [
        f"seqpack, version {__version__}",
        f"python {platform.python_version()}, {system}",
        *(f"{name} {_find_version(name)}" for name in (*PACKAGES, *EXTRAS)),
    ]


def show_versions(ctx: click.Context, _: click.Parameter, is_asked: bool) -> None:
    """Print the versions and end, as click's own option does."""
    if is_asked and not ctx.resilient_parsing:
        click.echo("\n".join(list_versions()))
        ctx.exit()


def _find_version(name: str) -> str:
    from importlib import metadata  # 20 ms, which every command would wait

    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "not installed"

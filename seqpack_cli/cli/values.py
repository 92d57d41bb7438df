"""The types of option values: sizes, counts, buckets, paths and URLs."""

from __future__ import annotations

import re
from typing import Any

import click
from click.shell_completion import CompletionItem

from seqpack_cli.errors import MAX_COUNT, MAX_SEED, MAX_SIZE
from seqpack_cli.files.places import Place, is_shared, parse_place
from seqpack_cli.sizes import read_size


class SizeType(click.ParamType):  # type: ignore[type-arg]
    """A number of bytes: 1048576, 2MB, 64MiB."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the number of bytes."""
        if isinstance(value, int):
            return value
        size = read_size(value)
        if size is None:
            self.fail(
                f"{value!r} is not a size, expected for example 1048576, 2MB or 64MiB", param, ctx
            )
        if not 1 <= size <= MAX_SIZE:
            self.fail(f"{value!r} is not a size from 1 byte to 1024 TiB", param, ctx)
        return size


class CountType(click.ParamType):  # type: ignore[type-arg]
    """A number in a range."""

    name = "N"

    def __init__(self, *, at_least: int, at_most: int) -> None:
        self._at_least = at_least
        self._at_most = at_most

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the number."""
        if not _is_count(str(value).strip(), at_least=self._at_least, at_most=self._at_most):
            expected = f"a number from {self._at_least} to {self._at_most:,}"
            self.fail(f"{str(value)[:60]!r} is not {expected}", param, ctx)
        return int(value)


class SampleType(click.ParamType):  # type: ignore[type-arg]
    """A number of batches, or `all`."""

    name = "N|all"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> int | None:
        """Return the number; None for all."""
        if value == "all":
            return None
        if isinstance(value, int) or _is_count(value, at_most=MAX_COUNT):
            return int(value)
        self.fail(f"{value!r} is not 'all' or a number from 1 to {MAX_COUNT:,}", param, ctx)


class BucketsType(click.ParamType):  # type: ignore[type-arg]
    """Bucket keys: auto, or 32,64,128, or for pairs (10,15),(20,25)."""

    name = "auto|K1,K2,…"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> str | tuple[int, ...] | tuple[tuple[int, int], ...]:
        """Return the keys, or "auto"."""
        if value == "auto" or isinstance(value, tuple):
            return "auto" if value == "auto" else value
        text = re.sub(r"\s*([(),])\s*", r"\1", str(value)).strip()
        is_pairs = re.fullmatch(r"\(\d+,\d+\)(,\(\d+,\d+\))*", text, re.ASCII)
        keys = re.findall(r"\d+", text) if is_pairs else text.split(",")
        if not all(_is_count(key, at_most=MAX_COUNT) for key in keys):
            expected = "auto, lengths like 32,64,128, or for pairs (10,15),(20,25)"
            self.fail(f"{value!r}, expected {expected}", param, ctx)
        found = tuple(int(key) for key in keys)
        return tuple(zip(found[::2], found[1::2], strict=True)) if is_pairs else found


class PlaceType(click.ParamType):  # type: ignore[type-arg]
    """A path, or the URL of an object store."""

    name = "path"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Place:
        """Return the path or URL."""
        if not str(value):
            self.fail("the name is empty", param, ctx)  # most often an unset shell variable
        place = parse_place(value)
        if not is_shared(place):
            self.fail(f"{value}: memory:// ends with this command", param, ctx)
        return place

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Leave the completion of paths to the shell."""
        del ctx, param
        return [CompletionItem(incomplete, type="file")]


class OutputType(PlaceType):
    """A path or URL to write to: a folder, or a file."""

    def __init__(self, *, is_file: bool, takes_stdout: bool) -> None:
        self._is_file = is_file
        self._takes_stdout = takes_stdout

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Place:
        """Return the path or URL."""
        from seqpack_cli.files.outputs import names_folder

        if value == "-" and not self._takes_stdout:
            self.fail("stdout is not supported here; pass ./- for a file of this name", param, ctx)
        if self._is_file and names_folder(value):
            self.fail(f"{value}: names a folder, expected a file", param, ctx)
        return super().convert(value, param, ctx)


def _is_count(text: str, *, at_least: int = 1, at_most: int) -> bool:
    """Return whether a text is a number in the range; int() itself refuses very long ones."""
    return text.isdecimal() and len(text) <= len(str(at_most)) and at_least <= int(text) <= at_most


SIZE = SizeType()
BUCKETS = BucketsType()
POSITIVE = CountType(at_least=1, at_most=MAX_COUNT)  # the limit for tokens and rows
NATURAL = CountType(at_least=0, at_most=MAX_SEED)
PLACE = PlaceType()

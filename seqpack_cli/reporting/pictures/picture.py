"""Draw panels below one another into a PNG or SVG file, or one panel as SVG for a page.

The same panels make the same bytes with the same version of matplotlib: no dates, no random ids.
Text in an SVG stays text, which can be searched, copied and read aloud.
"""

from __future__ import annotations

import importlib.util
import io
import re
import signal
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from seqpack_cli.errors import MachineError, OptionError
from seqpack_cli.files.outputs import FileKind, check_target, publish_alone
from seqpack_cli.files.places import Place

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SUFFIXES = (".png", ".svg")
TAG = re.compile("<[^<>]+>")  # texts between tags have their < and > escaped
REFERENCE = re.compile(r'( id="|href="#|url\(#)')
WIDTH = 9.0  # inches
TITLE_HEIGHT = 0.5  # inches
DOTS_PER_INCH = 150
# Fonts for characters that DejaVu Sans lacks, used in a PNG if they are installed. Whatever shows
# an SVG chooses its fonts itself.
OTHER_FONTS = ("Noto Sans CJK SC", "PingFang SC", "Microsoft YaHei", "Droid Sans Fallback")
SETTINGS: dict[str, Any] = {
    "axes.axisbelow": True,
    "axes.edgecolor": "#555555",
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.labelcolor": "#333333",
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 10.5,
    "axes.titleweight": "bold",
    "font.family": "sans-serif",
    "font.size": 9,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "hatch.linewidth": 0.6,
    "svg.fonttype": "none",
    "text.parse_math": False,  # a dollar in a name is a dollar
    "xtick.color": "#555555",
    "ytick.color": "#555555",
}
# Marks a picture as ours. No date: the file is the same each time.
METADATA: dict[str, dict[str, Any]] = {
    "png": {"Software": "seqpack"},
    "svg": {"Publisher": "seqpack", "Date": None},
}
MADE_BY_SEQPACK = re.compile(
    rb"\x89PNG\r\n.*tEXtSoftware\0seqpack"
    rb"|<\?xml.*<dc:publisher>\s*<cc:Agent>\s*<dc:title>seqpack</dc:title>",
    re.DOTALL,
)
PICTURE = FileKind(
    "a picture that seqpack drew", lambda head: MADE_BY_SEQPACK.match(head) is not None
)


@dataclass(frozen=True)
class Panel:
    """One drawing."""

    name: str  # one word, for ids in a page
    title: str
    draw: Callable[[Axes], None]
    height: float = 3.0  # inches


def check_picture_path(path: Place) -> None:
    """Check, before any work, that a picture can be made and written.

    Raises:
        OptionError: the suffix is neither .png nor .svg.
        FolderError: the file exists and is not a picture of seqpack.
        MachineError: matplotlib is not installed.
    """
    check_output(path, PICTURE, SUFFIXES, ["matplotlib"])


def check_output(
    path: Place, kind: FileKind, suffixes: Sequence[str], packages: Sequence[str]
) -> None:
    """Check that a picture or page can be written; see `check_picture_path`."""
    if path.suffix.lower() not in suffixes:
        raise OptionError(f"{path}: suffix {path.suffix!r}, expected {' or '.join(suffixes)}")
    for name in packages:
        if importlib.util.find_spec(name) is None:
            raise MachineError(f"{name} is not installed", hint=f"pip install {name}")
    check_target(path, kind, overwrite=True)


def save_picture(path: Place, title: str, panels: Sequence[Panel]) -> None:
    """Draw panels below one another and publish the file; a picture of seqpack is replaced.

    Raises:
        FolderError: the file exists and is not a picture of seqpack.
        MachineError: the disk failed.
    """
    kind = path.suffix.lower().removeprefix(".")
    with publish_alone(path, PICTURE, overwrite=True) as file:
        file.write(_draw(panels, kind, title=title, salt="seqpack"))


def draw_svg(panel: Panel) -> str:
    """Draw one panel as an SVG element for a page."""
    text = _draw([panel], "svg", title=None, salt=panel.name).decode()
    element = text[text.index("<svg ") :]
    # Ids must be unique in a page, and the page has a description of its own.
    element = re.sub(r"<metadata>.*?</metadata>", "", element, flags=re.DOTALL)
    return TAG.sub(lambda tag: REFERENCE.sub(rf"\1{panel.name}-", tag[0]), element)


def _draw(panels: Sequence[Panel], kind: str, *, title: str | None, salt: str) -> bytes:
    target = io.BytesIO()
    _load_matplotlib()
    with _settings(kind, salt):
        figure = _lay_out(panels, title)
        figure.savefig(target, format=kind, dpi=DOTS_PER_INCH, metadata=METADATA[kind])
    return target.getvalue()


def _load_matplotlib() -> None:
    """Import matplotlib; Ctrl-C while its extensions start would abort the process."""
    with _deferring_interrupts():
        import matplotlib.backends.backend_agg
        import matplotlib.backends.backend_svg
        import matplotlib.figure
        import matplotlib.style  # noqa: F401


@contextmanager
def _deferring_interrupts() -> Iterator[None]:
    """Delay Ctrl-C and SIGTERM until the block ends."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread handles signals
        return
    caught: list[int] = []
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, lambda found, _: caught.append(found)) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
        for found in caught[:1]:
            signal.raise_signal(found)


def _lay_out(panels: Sequence[Panel], title: str | None) -> Figure:
    from matplotlib.figure import Figure

    heights = [panel.height for panel in panels]
    height = sum(heights) + (TITLE_HEIGHT if title else 0)
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    if title:
        figure.suptitle(title, x=0.01, ha="left", fontsize=11)
    grid = figure.subplots(len(panels), 1, squeeze=False, height_ratios=heights)
    for panel, axes in zip(panels, grid[:, 0], strict=True):
        axes.set_title(panel.title)
        panel.draw(axes)
    return figure


@contextmanager
def _settings(kind: str, salt: str) -> Iterator[None]:
    import matplotlib.style
    from matplotlib.font_manager import get_font_names

    # Ignore the user's matplotlibrc: pictures of one folder are the same everywhere.
    styles: list[Any] = ["default", {**SETTINGS, "svg.hashsalt": salt}]
    if kind == "png":
        found = set(get_font_names()).intersection(OTHER_FONTS)
        families = ["DejaVu Sans", *(font for font in OTHER_FONTS if font in found)]
        styles.append({"font.family": families})
    with matplotlib.style.context(styles), warnings.catch_warnings():
        # The font may lack a script; whatever shows an SVG has others.
        warnings.filterwarnings("ignore", message="Glyph .* missing from", category=UserWarning)
        yield

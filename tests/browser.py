"""A headless Chromium that opens a page, runs its script and returns the elements."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
SECONDS = 120  # enough for a browser to start on a busy machine


def find_browser() -> str | None:
    """Return the path of a browser, if one is installed."""
    return next(filter(None, map(shutil.which, NAMES)), None)


def open_page(path: Path, fragment: str = "", *, folder: Path) -> tuple[str, list[str]]:
    """Open a page; return its HTML after its script ran, and its error messages."""
    browser = find_browser()
    assert browser is not None
    done = subprocess.run(
        [
            browser,
            "--headless=new",
            *(["--no-sandbox"] if os.geteuid() == 0 else []),
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--host-resolver-rules=MAP * ~NOTFOUND",
            f"--user-data-dir={folder / 'browser'}",
            "--enable-logging=stderr",
            "--virtual-time-budget=5000",
            "--dump-dom",
            path.resolve().as_uri() + fragment,
        ],
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, re.findall(r".*CONSOLE.*", done.stderr)

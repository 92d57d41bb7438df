"""The version of this program, which all workers of a run must have."""

from __future__ import annotations

__version__ = "0.1.0"

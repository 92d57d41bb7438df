"""The version of this program: of the package, of its pages, and what all workers must have."""

from __future__ import annotations

__version__ = "0.1.0"

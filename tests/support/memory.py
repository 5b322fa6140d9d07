"""Temporary folders for tests that make thousands of small files: in memory where the system has such a place."""

from __future__ import annotations

import os
import tempfile


def quick_folder() -> tempfile.TemporaryDirectory[str]:
    shared = "/dev/shm"
    return tempfile.TemporaryDirectory(dir=shared if os.access(shared, os.W_OK) else None)

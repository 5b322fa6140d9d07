"""Temporary folders for tests that make thousands of small files: in memory where the system has such a place."""

import os
import tempfile


def quick_folder() -> tempfile.TemporaryDirectory[str]:
    shared = "/dev/shm"
    return tempfile.TemporaryDirectory(dir=shared if os.access(shared, os.W_OK) else None)

"""Data files from literals, and the real ones."""

from tests.support.open_files import open_file, read_file, real_data

__all__ = ["open_file", "read_file", "real_data"]

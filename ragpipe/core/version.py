"""The version of ragpipe, for files and messages that name it."""

__version__ = "0.1.0"

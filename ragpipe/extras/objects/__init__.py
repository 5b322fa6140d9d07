"""Object stores by fsspec: data sets from addresses, and finished runs published and fetched."""

from __future__ import annotations

ENTRIES = {
    "file_system": {"*": "ragpipe.extras.objects.remote_files"},
    "task": {name: f"ragpipe.extras.objects.{name}" for name in ("fetch", "publish")},
}
HELP = {"share": {"publish, fetch": "RUN to an object store, and back"}}
"""What `--help` says."""

"""Test sets: frozen ones drawn from logs, and questions to your own documents, by templates or by a model."""

from __future__ import annotations

ENTRIES = {
    "task": {"build_dataset": "ragpipe.extras.test_sets.build_dataset", "synthesize": "ragpipe.extras.test_sets.synthesize"}
}
HELP = {
    "data": {
        "build_dataset": "a frozen test set from a log: duplicates, draw, personal data",
        "synthesize": "a test set from your documents, without a model",
    }
}
"""What `--help` says."""

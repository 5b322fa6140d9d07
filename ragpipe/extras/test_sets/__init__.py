"""Test sets: frozen ones drawn from logs, and questions to your own documents, by templates or by a model."""

from __future__ import annotations

ENTRIES = {
    "task": {
        "build_dataset": "ragpipe.extras.test_sets.build_dataset",
        "synthesize": "ragpipe.extras.test_sets.synthesize",
    },
}

"""Test sets: frozen ones drawn from logs, and questions to your own documents, by templates or by a model."""

from __future__ import annotations

ENTRIES = {
    "task": {"build_dataset": "ragpipe.extras.test_sets.build_dataset", "synthesize": "ragpipe.extras.test_sets.synthesize"}
}
HELP = """\
  python -m ragpipe task=build_dataset dataset=jsonl dataset.path=log.jsonl build.dir=sets/march
                                                           a frozen test set from a log: duplicates, draw, personal data
  python -m ragpipe task=synthesize synthesize.documents=docs  a test set from your documents, without a model
"""
"""The lines of `--help`."""

"""What the weights of the overall score decide: other weight sets, all weights, weights fitted to people's ratings."""

from __future__ import annotations

ENTRIES = {"task": {"weights": "ragpipe.extras.weights.weights"}}
HELP = """\
  python -m ragpipe task=weights run=my                    what the weights of the overall score decide
"""
"""The lines of `--help`."""

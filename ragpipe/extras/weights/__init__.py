"""What the weights of the overall score decide: other weight sets, all weights, weights fitted to people's ratings."""

from __future__ import annotations

ENTRIES = {"task": {"weights": "ragpipe.extras.weights.weights"}}
HELP = {"understand": {"weights": "what the weights of the overall score decide"}}
"""What `--help` says."""

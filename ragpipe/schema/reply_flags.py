"""Flags of a reply that more than one room knows."""

from __future__ import annotations

WEIGHTED = "weighted"
"""The whole grades of the reply are means over the probabilities of their tokens."""
UNWEIGHTED = "not_weighted"
"""They were to be, and one of them stays as it was written."""

"""Shared by several metrics: ranking arrays, gold labels and anchors, chains, quotes, flags."""

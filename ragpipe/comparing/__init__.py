"""Comparing runs, or methods of one run, over the cases that they share: differences with intervals, verdicts, flips."""

"""The configuration of a run: its settings, and the checks over all sections together."""

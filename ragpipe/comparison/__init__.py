"""Is it better: pairing, differences with intervals, verdicts, history. `comparison` is the door; no judge is asked."""

"""Where slices of a run are measured: in this process, or by Ray."""

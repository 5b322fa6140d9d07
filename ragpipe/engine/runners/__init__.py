"""Where slices of a run are measured: in this process, in worker processes of this host, or by Ray."""

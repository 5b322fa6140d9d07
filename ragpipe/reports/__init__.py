"""Reports: what a person reads of a run. They read its tables and never judge."""

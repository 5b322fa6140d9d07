"""The sections of a report: one module per section builds its tables and notes from the files of the run."""

"""Data sets: strict streaming readers and one declarative mapping from any record shape to samples and outputs."""

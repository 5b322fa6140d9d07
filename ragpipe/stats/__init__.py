"""Statistics: arrays in, numbers out. Nothing here knows of files, scores or judges."""

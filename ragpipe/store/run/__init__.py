"""The run folder: its files, lock, journal and seals, and the one reader of its tables and JSON files."""

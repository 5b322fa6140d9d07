"""Files that are written whole or not at all: atomic writes, Parquet in parts, processes and file systems."""

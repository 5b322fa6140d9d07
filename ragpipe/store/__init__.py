"""What is on disk: atomic files, judge replies, the journal, Parquet parts, the run folder and its lock."""

"""Worker processes of this host that load, score and seal by parts, and how they are spoken to."""

"""What is on disk: files, run folders and the call store."""

"""Test sets from logs: duplicates, personal data, draws, and the frozen files."""

"""Finished runs for other programs: CSV and JSON Lines, JUnit XML for CI, and OpenMetrics."""

"""Arrays in, numbers out: intervals, differences and their verdicts, agreement, corrected means. Begin with `intervals`."""

"""Span exports of tracing tools, read into one record per trace with one set of names."""

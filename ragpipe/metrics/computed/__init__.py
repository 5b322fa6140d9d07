"""Metrics that ask no judge: computed from labels, strings, vectors or recorded values. One metric per file; docs/metrics.md describes each."""

"""Metrics that ask a judge: each costs calls. One metric per file; docs/metrics.md describes each."""

"""Scores become `records.parquet`, `metrics.json`, diagnoses, gates and `cost.json`. No judge can be reached from here.

`settings` is the `scoring` section, `aggregate` makes `metrics.json`, `gate_rules` decides. A kind of gate is added there.
"""

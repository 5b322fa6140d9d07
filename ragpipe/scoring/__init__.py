"""Scoring: from stored scores to `records.parquet`, `metrics.json`, `low_scores.json`, `gates.json` and `cost.json`.

Pure functions of stored tables; no judge can be reached from here. In the order of the work:

- `settings`, `default_settings`, `cross_checks`: the scoring section, its shipped defaults, and its check against the run's scores.
- `case_blocks`, `dimensions`, `scored_columns`, `composites`, `normalisation`: cases block by block, as scored columns.
- `rules/`: failure modes, diagnosis, low scores.
- `accumulators`, `aggregate`, `estimates`, `coverage`, `shared_scores`, `value_distributions`: means, intervals, breakdowns.
- `gates/`: limits that a run must keep. `iterations/`: several iterations together.
- `cost`, `operations`, `system_usage`, `judge_latency`, `served_models`: what the run used and how it ran.
"""

"""Several iterations together: a score of every case over them (`per_case_repeats`), `final/metrics.json`, `final/cost.json`."""

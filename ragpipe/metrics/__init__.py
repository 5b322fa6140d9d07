"""One metric per file: `judged/` asks a judge, `computed/` asks nobody. `base.Metric` is what a metric is.

To add one: a file there, a folder under `prompts/`, a YAML under `conf/metrics/`.
"""

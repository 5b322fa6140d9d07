"""One metric per file. Adding one: a Python file in `judged/` or `computed/`, a folder under `prompts/`, a YAML under `conf/metrics/`."""

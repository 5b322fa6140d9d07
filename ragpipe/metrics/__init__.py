"""One metric a file. Adding one: a Python file here, a folder under `prompts/`, a YAML under `conf/metrics/`."""

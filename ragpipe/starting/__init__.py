"""A folder to start from, written from a file: its mapping, the metrics that it allows, an experiment and a judge."""

"""The renderers of a report: as terminal output and as Markdown. They lay out values and decide nothing else."""

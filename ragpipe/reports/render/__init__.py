"""The renderers: a report as terminal output, as Markdown and as HTML. They lay out values and decide nothing else."""

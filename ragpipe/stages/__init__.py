"""The stages of a run: load, judge, score, report. Each reads files and writes files, and is done again only when its input changed."""

"""The stages of a run: load, collect, plan, judge, score, report, seal. Each reads files and writes files, and is done again only when
its input changed."""

"""One run in its folder: load, collect, plan, judge, score, report, seal; resume and replay. `evaluation` is the door."""

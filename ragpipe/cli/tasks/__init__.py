"""One module per value of `task=`.

A task is a function `run(checked, console)` that returns an exit code. A task with settings of its own has a `validate` too,
which turns the composed configuration into what `run` gets; without one it gets the checked `RunConfig`.
A task over a finished run opens it with `open_finished_run` of `ragpipe.runs.finished_run`.
"""

"""`task=view`: a local page over all runs of an output folder, and the same as a static folder.

- `run_files`: files of run folders, whoever made them: no link, no device, nothing huge.
- `run_state`: whether a run is going on, stalled or done; its counters.
- `run_index`: all runs of the folder, read in the background and kept by the size and time of their files.
- `run_row`, `index_page`: what the page says of a run; the page itself. `history_chart`: the means over time, as SVG.
- `run_changes`: differences to the run before, in a thread.
- `guards`: who may ask. `page_policies`: what a file of a run may do in the browser. `view_server`: the routes.
- `site`: the static folder.

Nothing here writes into the output folder.
"""

from __future__ import annotations

ENTRIES = {"task": {"view": "ragpipe.extras.view.view"}, "export": {"site": "ragpipe.extras.view.site:export_site"}}
HELP = """\
  python -m ragpipe task=view                              a local page over all runs; as a folder: task=export 'formats=[site]'
"""
"""The lines of `--help`."""

"""`task=view`: a local page over all runs of an output folder, and the same as a static folder.

- `run_files`: files of run folders, whoever made them: no link, no device, nothing huge.
- `listed_run`: one run, and whether it is going on, stalled or done. `run_index`: all runs, kept by the size and time of their files.
- `run_changes`: differences to the previous run, in a thread.
- `index_document`: what the page says of all that, with the means over time as SVG.
- `view_server`: the routes, who may ask, and what a file of a run may do in the browser. `site`: the static folder.

Nothing here writes into the output folder.
"""

from __future__ import annotations

ENTRIES = {"task": {"view": "ragpipe.extras.view.view_server"}, "export": {"site": "ragpipe.extras.view.site:export_site"}}
HELP = {"understand": {"view": "a local page over all runs"}}
"""What `--help` says."""

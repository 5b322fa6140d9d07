"""Finished runs in an output folder, from literals."""

import json
from pathlib import Path
from typing import Any

from ragpipe.store.run_folder import RunFolder
from tests.support.compared_runs import graded, scored_run

PAGE = "<!doctype html><title>report</title><p>a report"


def listed_run(folder: Path, run_id: str, grade: float, *, day: int = 1, **manifest: Any) -> RunFolder:
    """A finished run of 30 cases with the mean `grade`, made on a day of January 2026, with two reports. The grades of a case
    differ by up to .04 from run to run, as a judge's do; runs with equal grades are of equal days modulo 4."""
    values = {f"q{n}": grade + ((n * (1 + day % 4)) % 5 - 2) / 100 for n in range(30)}
    run = scored_run(folder / run_id, graded(values), run_id=run_id)
    content = json.loads(run.manifest.read_text())
    content |= {"created_at": f"2026-01-{day:02d}T10:00:00.000+00:00", "name": folder.name, **manifest}
    run.manifest.write_text(json.dumps(content))
    run.html.write_text(PAGE)
    run.report.write_text("# a report\n")
    return run

"""Every report says which run it is of, when it was made, how long it took and how long the system took."""

import json
from pathlib import Path
from xml.etree import ElementTree as Xml

import pytest

from ragpipe.cli.command_line import main
from ragpipe.report.styled_text import run_words
from tests.support.finished_runs import FinishedRuns
from tests.support.reports import without_run_line

WORDS = ("+experiment=quickstart", "metrics=[retrieval]", "report.formats=[markdown,html,junit,terminal]")
START = "2026-01-22T09:05:59.123+00:00"


@pytest.mark.parametrize(("run", "words"), [
    ({"created_at": START, "duration_s": 754.0}, "2026-01-22 09:05 UTC, took 12 min 34 s"),  # rag-evaluation-framework.md, 7.3
    ({"created_at": START, "duration_s": 8.24, "suite_s": 360.0}, "2026-01-22 09:05 UTC, took 8.2 s, the system 6 min 0 s"),
    ({"created_at": START, "duration_s": 7384.0, "suite_s": None}, "2026-01-22 09:05 UTC, took 2 h 3 min"),
    ({"created_at": START}, "2026-01-22 09:05 UTC"),
    ({}, ""),
])  # fmt: skip
def test_date_duration_and_suite_time_in_words(run: dict[str, object], words: str) -> None:
    assert run_words(run) == words


@pytest.mark.slow
def test_a_run_that_was_stopped_and_started_again_has_the_same_reports_but_for_its_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, finished_runs: FinishedRuns
) -> None:
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.chdir(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr("ragpipe.runs.evaluation.write_reports", stop)
        assert main([*WORDS]) == 130
    assert main([*WORDS]) == 0
    whole, resumed = finished_runs.of(*WORDS).latest(), Path("outputs/quickstart/latest").resolve()
    for name in ("report.md", "report.html"):
        pages = [without_run_line((run / name).read_text()) for run in (whole, resumed)]
        assert pages[0] == pages[1], name
    assert main(["task=verify", f"run={resumed}"]) == 0


@pytest.mark.slow
def test_the_run_stands_on_every_report_and_on_both_sides_of_a_comparison(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, finished_runs: FinishedRuns
) -> None:
    finished = finished_runs.of(*WORDS)
    finished.copy_outputs(tmp_path)
    monkeypatch.chdir(tmp_path)
    run = Path("outputs/quickstart/latest").resolve()
    manifest = json.loads((run / "manifest.json").read_text())
    date, took = f"{manifest['created_at'][:16].replace('T', ' ')} UTC", f"took {manifest['duration_s']:.1f} s"
    line = f"run {run.name} of quickstart, {date}, {took}, the system 2 min 4 s"  # 101 latencies of the data, in all 124 s
    assert line.replace(" of quickstart", "") in finished.printed
    assert f'<p class="note">{line}</p>' in (run / "report.html").read_text()
    assert f"run `{run.name}` of `quickstart`, {date}" in (run / "report.md").read_text()
    properties = {p.get("name"): p.get("value") for p in Xml.parse(run / "report.junit.xml").iter("property")}
    facts = (run.name, manifest["created_at"], str(manifest["duration_s"]))
    assert tuple(properties[key] for key in ("run_id", "created_at", "duration_s")) == facts
    assert main(["task=compare", "compare=methods", "run=quickstart"]) == 0
    (folder,) = Path("outputs/quickstart/comparisons").iterdir()
    for name in ("comparison.md", "compare.html"):
        page = (folder / name).read_text().replace("\\", "")
        assert page.count(f"{date}, {took}, the system") == 3, f"{name}: base and two candidates"

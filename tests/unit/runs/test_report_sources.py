"""Reports are written anew only where something that they show has changed."""

import importlib
import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from ragpipe.core import registry
from ragpipe.core.score import ScoreSpec
from ragpipe.report import run_page
from ragpipe.report.console import Console
from ragpipe.report.model import Report
from ragpipe.report.settings import ReportSettings
from ragpipe.runs.write_reports import write_reports
from ragpipe.score.settings import ScoringSettings
from ragpipe.store.run_folder import RunFolder
from tests.support.compared_runs import scored_run
from tests.support.run_tables import Row

FORMATS = ReportSettings(formats=["terminal", "markdown", "html", "junit", "csv"])


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    rows = [Row(f"q{i}", "a", {"faithfulness": i / 4}) for i in range(5)]
    return scored_run(tmp_path, rows, specs=[ScoreSpec("faithfulness")], scoring=ScoringSettings())


@pytest.fixture
def pages_made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    made, render = list[str](), run_page.write_run_page

    def counted(path: Path, report: Report, *args: Any, **options: Any) -> list[Path]:
        made.append(report.name)
        return render(path, report, *args, **options)

    monkeypatch.setattr("ragpipe.runs.write_reports.write_run_page", counted)
    return made


def reports(run: RunFolder, settings: ReportSettings = FORMATS) -> tuple[str, dict[str, bytes]]:
    console = Console(out=(out := io.StringIO()), err=io.StringIO())
    written = write_reports(run.iteration(1).root, target=run.root, settings=settings, console=console)
    return out.getvalue(), {path.relative_to(run.root).as_posix(): path.read_bytes() for path in written}


def test_a_second_start_makes_no_report_again_and_says_the_same(run: RunFolder, pages_made: list[str]) -> None:
    first = reports(run)
    assert {"report.md", "report.html", "report.junit.xml"} < set(first[1])
    assert (reports(run), len(pages_made)) == (first, 1)


DAMAGES: dict[str, Callable[[RunFolder], object]] = {
    "an edited page": lambda run: run.html.write_text("edited"),
    "no export": lambda run: next(run.export.rglob("*.csv")).unlink(),
    "no note": lambda run: run.reports_made.unlink(),
    "an empty note": lambda run: run.reports_made.write_text(json.dumps({**noted(run), "written": ["report.html"]})),
}


def noted(run: RunFolder) -> dict[str, Any]:
    return dict(json.loads(run.reports_made.read_text()))


@pytest.mark.parametrize("damage", DAMAGES)
def test_reports_that_are_not_what_was_written_are_made_again(run, pages_made, damage) -> None:
    first = reports(run)
    DAMAGES[damage](run)
    assert (reports(run), len(pages_made)) == (first, 2)
    assert (reports(run), len(pages_made)) == (first, 2)


def test_other_sources_make_other_reports(run: RunFolder, pages_made: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    first = reports(run)[1]
    fewer = FORMATS.model_copy(update={"percent": ["faithfulness"]})
    assert reports(run, fewer)[1]["report.md"] != first["report.md"]
    records = run.iteration(1).records
    table = pq.read_table(records)
    answers = table.schema.get_field_index("answer")
    pq.write_table(table.set_column(answers, table.schema.field(answers), [["changed"] * len(table)]), records)
    assert b"changed" in reports(run, fewer)[1]["report.html"]  # the worst cases stand in the page itself
    assert len(pages_made) == 3
    monkeypatch.setattr("ragpipe.runs.report_sources.code_digest", lambda: "another state of the code")
    reports(run, fewer)
    assert len(pages_made) == 4


def test_a_note_from_elsewhere_names_no_file_outside_the_run(run: RunFolder) -> None:
    (run.root.parent / "outside").write_text("not ours")
    reports(run)
    written = noted(run)["written"]
    run.reports_made.write_text(json.dumps({**noted(run), "written": {**written, "../outside": written["report.md"]}}))
    assert "../outside" not in reports(run)[1]


def test_a_plugin_that_changed_makes_other_reports(run: RunFolder, pages_made: list[str], monkeypatch, tmp_path) -> None:
    place = tmp_path / "mine"
    place.mkdir()
    monkeypatch.syspath_prepend(str(place))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    reports(run)
    find = registry.find
    for number, text in enumerate(("sunny", "cloudy"), 2):
        source = f"from ragpipe.report.model import Note, Section\n\n\ndef weather(data):\n    return Section('weather', 'Weather', (Note('{text}'),))\n"
        (place / "own_weather.py").write_text(source)
        importlib.invalidate_caches()
        sys.modules.pop("own_weather", None)
        weather = importlib.import_module("own_weather").weather
        monkeypatch.setattr(registry, "names", lambda kind: [*registry.own_names(kind), "weather"])
        monkeypatch.setattr(registry, "find", lambda _, name, weather=weather: weather if name == "weather" else find("section", name))
        printed, files = reports(run)
        assert text in files["report.md"].decode()
        assert "Weather" in printed
        assert len(pages_made) == number

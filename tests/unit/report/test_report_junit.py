"""report.junit.xml against the elements, attributes and order of Jenkins' junit-10.xsd, as far as ragpipe writes them."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as Xml

import pytest

from ragpipe.core.errors import DataError
from ragpipe.core.score import ScoreSpec
from ragpipe.report.console import Console
from ragpipe.report.exports import junit_xml
from ragpipe.report.settings import ReportSettings
from ragpipe.runs.write_reports import write_reports
from ragpipe.score.settings import ScoringSettings
from ragpipe.testing import assert_gates
from tests.support.compared_runs import scored_run
from tests.support.run_tables import Row, score, stored, write_run

pytestmark = pytest.mark.slow


# element: (required attributes, optional attributes, children in their order or, as a set, in any)
XSD: dict[str, tuple[set[str], set[str], Any]] = {
    "testsuites": (set(), {"name", "time", "tests", "failures", "disabled", "errors"}, ["testsuite"]),
    "testsuite": (
        {"name", "tests"}, {"failures", "errors", "group", "time", "skipped", "timestamp", "hostname", "id", "package",
        "file", "log", "url", "version"}, ["properties", "testcase", "system-out", "system-err"],
    ),
    "properties": (set(), set(), ["property"]),
    "property": ({"name", "value"}, set(), []),
    "testcase": (
        {"name"}, {"classname", "group", "time", "status", "class", "file", "line", "assertions"},
        {"skipped", "error", "failure", "system-out", "system-err"},
    ),
    "failure": (set(), {"message", "type"}, []),
    "skipped": (set(), {"message", "type"}, []),
    "system-out": (set(), set(), []),
}  # fmt: skip


def fits(element: Xml.Element) -> None:
    required, optional, children = XSD[element.tag]
    assert required <= set(element.attrib) <= required | optional, element.tag
    names = [child.tag for child in element]
    assert set(names) <= set(children), element.tag
    if isinstance(children, list):
        assert names == sorted(names, key=children.index)
    for child in element:
        fits(child)


def suite(root: Path, gates: dict[str, Any], **results: Any) -> dict[str, Xml.Element]:
    """The test cases of a run of ten cases with these gates, by name; a list holds a score's ten results."""
    values = {"faithfulness": 0.5, **results}
    rows = [{name: one[i] if isinstance(one, list) else one for name, one in values.items()} for i in range(10)]
    write_run(root, [Row(f"q{i}", "a", row) for i, row in enumerate(rows)])
    score(root, [ScoreSpec(name) for name in values], ScoringSettings.model_validate({"gates": gates}))
    write_reports(root / "iteration-1", target=root, settings=ReportSettings(formats=["junit"]), console=Console())
    found = Xml.parse(root / "report.junit.xml").getroot()
    fits(found)
    (one,) = found
    cases = list(one.iter("testcase"))
    for where in (found, one):
        assert where.attrib["tests"] == str(len(cases))
        assert where.attrib["failures"] == str(sum(case.find("failure") is not None for case in cases))
    assert one.attrib["skipped"] == str(sum(case.find("skipped") is not None for case in cases))
    return {case.attrib["name"]: case for case in cases}


def test_one_case_a_gate(tmp_path: Path) -> None:
    """Ten cases of .5; nine of ten judgements of context_relevance came out, which is under the floor of .95."""
    cases = suite(tmp_path, {
        "good": {"score": "faithfulness", "min": 0.4, "by": "point", "tier": "quality"},
        "bad": {"score": "faithfulness", "min": 0.6, "by": "point"},
        "poor": {"score": "faithfulness", "min": 0.6, "by": "point", "tier": "quality"},
        "open": {"score": "faithfulness", "min": 0.6},
        "free": {"score": "citation", "min": 1, "without_cases": "not_applicable"},
        "shown": {"score": "faithfulness", "min": 0.6, "tier": "diagnostic"},
        "absent": {"score": "citation", "min": 0.1},
        "thin": {"score": "context_relevance", "min": 0.1},
    }, citation=("skipped", "no_reference"), context_relevance=[1.0] * 9 + [("error", "refused: no")])  # fmt: skip
    assert [list(map(lambda e: e.tag, case)) for case in cases.values()] == [
        ["system-out"], ["failure"], ["system-out"], ["system-out"], ["skipped"], ["skipped"], ["failure"], ["failure"]
    ]  # fmt: skip
    kinds = {name: case.find("failure").attrib["type"] for name, case in cases.items() if case.find("failure") is not None}  # type: ignore[union-attr]  # fmt: skip
    assert kinds == {"bad": "failed", "absent": "no_evidence", "thin": "not_enough_evidence"}
    assert "warning" not in (cases["good"][0].text or "")
    assert (cases["poor"][0].text or "").startswith("warning: mean of faithfulness is 0.5 over 10 cases (at least 0.6)")
    assert "inconclusive, its interval" in (cases["open"][0].text or "")
    assert (cases["open"][0].text or "").startswith("warning: ")
    assert cases["bad"].attrib["classname"] == "gates.critical"


def test_without_gates_or_a_run(tmp_path: Path) -> None:
    cases = suite(tmp_path, {})
    assert list(cases) == ["iteration 1 complete"]
    assert cases["iteration 1 complete"].find("failure") is None
    metrics = stored(tmp_path, "metrics.json")
    metrics["overall"]["scores"]["faithfulness"]["n_missing"] = 3
    found = Xml.fromstring(junit_xml([metrics, {**metrics, "iteration": 2}], None, run={"name": "x"}))
    fits(found)
    assert [case.attrib["name"] for case in found.iter("testcase")] == ["iteration 1 complete", "iteration 2 complete"]
    assert found.attrib["failures"] == "2"
    (first, _) = found.iter("failure")
    assert first.attrib == {"type": "incomplete", "message": "faithfulness: 3 cases are not measured"}
    with pytest.raises(AssertionError, match="no gates, so nothing was asserted"):
        assert_gates(run_of(tmp_path))
    with pytest.raises(DataError):
        assert_gates(tmp_path / "nothing")


@pytest.mark.parametrize("text", ["]]><x/>", "a\x00\x0b\x1b[2J\ufffe\uffff", "<&\"'>", "\ud800", "漢 🙂 é", "a\r\nb"])
def test_any_text_gives_readable_xml(tmp_path: Path, text: str) -> None:
    gate = {"name": text, "tier": "critical", "verdict": "failed", "outcome": "blocked", "sentence": text}
    found = Xml.fromstring(junit_xml([], {"gates": [gate]}, run={"name": text}).encode("utf-8"))
    fits(found)
    (case,) = found.iter("testcase")
    assert len(list(case)) == 1
    assert not list(case[0])
    if text.isprintable() and text != "\ud800":
        assert case.attrib["name"] == text


GRADE = ScoreSpec(name="grade", low=0, high=1)
LOW = {"score": "grade", "min": 0.9}  # .2 to .65 of a mean of .4: failed
FINE = {"score": "grade", "min": 0.1}
UNSURE = {"score": "grade", "min": 0.4}
ABSENT = {"score": "faithfulness", "min": 0.5}


def run_of(tmp_path: Path, **gates: Mapping[str, Any]) -> Path:
    rows = [Row(f"q{number:02}", "bot", {"grade": float(number >= 12)}) for number in range(20)]
    settings = ScoringSettings.model_validate(
        {"gates": gates, "thresholds": {}, "weights": {"grade": 1.0}, "accept_uncalibrated": True, "fill_defaults": False}
    )
    return scored_run(tmp_path / "run", rows, specs=[GRADE], scoring=settings).root


def test_gates_that_passed_or_are_allowed(tmp_path: Path) -> None:
    diagnostic = {**LOW, "tier": "diagnostic"}
    assert_gates(run_of(tmp_path, fine=FINE, shown=diagnostic, off={**ABSENT, "without_cases": "not_applicable"}))
    run = run_of(tmp_path, low=LOW, unsure=UNSURE, absent={**ABSENT, "tier": "quality"})
    with pytest.raises(AssertionError) as raised:
        assert_gates(run)
    said = " ".join(str(raised.value).split())
    assert re.search(r"3 of 3 gates.*inconclusive.*no evidence: this run does not give faith", said)
    with pytest.raises(AssertionError, match="1 of 3 gates"):
        assert_gates(run, allow=["inconclusive", "no_evidence"])
    assert_gates(str(run), allow=["inconclusive", "no_evidence", "low"])
    with pytest.raises(ValueError, match="failed: neither a verdict nor a gate; one of absent, inconclusive, low"):
        assert_gates(run, allow=["failed"])


def test_a_gate_that_did_not_pass_is_a_row_with_its_worst_cases(tmp_path: Path) -> None:
    """8 of 20 are 1: the mean is .4, its Wilson interval .22 to .61."""
    run = run_of(tmp_path, fine=FINE, low=LOW)
    with pytest.raises(AssertionError) as raised:
        assert_gates(run)
    lines = str(raised.value).splitlines()
    assert lines[0] == "1 of 2 gates of run run did not pass"
    assert lines[2].split() == ["gate", "tier", "value", "limit", "interval", "verdict"]
    assert lines[3].startswith("low   critical  0.4    at least 0.9  0.2")
    assert lines[3].endswith("failed")
    assert lines[4] == "    worst: q00/bot/1 (0), q01/bot/1 (0), q02/bot/1 (0)"
    assert lines[-1] == f"report: {run}"
    assert "fine" not in str(raised.value)

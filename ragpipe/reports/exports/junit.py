"""`report.junit.xml`: the gates as test cases, for the CI systems that show such files. It fails exactly where a run is blocked.

The elements are those of Jenkins' schema (https://github.com/jenkinsci/xunit-plugin, junit-10.xsd), which GitLab, GitHub and
Azure read too. It holds no time: equal results give equal bytes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any
from xml.etree import ElementTree as Xml

from ragpipe.core.safe_text import on_one_line, printable
from ragpipe.reports.comparison_summary import side_label, undecided_text
from ragpipe.reports.number_format import difference_text, whole
from ragpipe.schema.run_warning import warning_texts

_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # https://www.w3.org/TR/xml/#charsets


def junit_xml(metrics: Sequence[Mapping[str, Any]], gates: Mapping[str, Any] | None, *, name: str) -> str:
    """The file for the run called `name`: `metrics` are its iterations' metrics.json, `gates` its gates.json.

    A critical gate that did not pass is a failure whose type is the verdict (`failed`, `no_evidence`, ...); a quality gate
    that did not, or an inconclusive one that only warns, is passed, with the warning in its output; one that is diagnostic
    or not applicable is skipped, because it decides nothing. A run without gates has one test case per iteration: whether
    every case was measured.
    """
    declared = gates["gates"] if gates else ()
    cases = [_gate(gate) for gate in declared] or [_iteration(iteration) for iteration in metrics]
    return junit_document([(name, _facts(metrics), cases)])


def junit_document(suites: Sequence[tuple[str, Sequence[tuple[str, str]], Sequence[Xml.Element]]]) -> str:
    """A file of test suites, each with its name, its properties and its test cases."""
    root = Xml.Element("testsuites", {"name": "ragpipe"})
    totals = dict.fromkeys(("tests", "failures", "errors", "time"), 0)
    for name, facts, cases in suites:
        counts = {"tests": len(cases), "failures": _count(cases, "failure"), "skipped": _count(cases, "skipped")}
        attributes = {**counts, "errors": 0, "time": 0}
        totals = {key: total + attributes[key] for key, total in totals.items()}
        suite = Xml.SubElement(root, "testsuite", {"name": xml_text(name), **_texts(attributes)})
        properties = Xml.SubElement(suite, "properties")
        for key, value in facts:
            Xml.SubElement(properties, "property", {"name": key, "value": xml_text(value)})
        suite.extend(cases)
    root.attrib.update(_texts(totals))
    Xml.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + Xml.tostring(root, encoding="unicode") + "\n"


def _gate(gate: Mapping[str, Any]) -> Xml.Element:
    outcome, sentence = gate["outcome"], xml_text(str(gate["sentence"]))
    case = junit_case(f"gates.{gate['tier']}", str(gate["name"]))
    if outcome == "blocked":
        Xml.SubElement(case, "failure", {"type": xml_text(gate["verdict"]), "message": sentence}).text = sentence
    elif gate["tier"] == "diagnostic" or gate["verdict"] == "not_applicable":
        Xml.SubElement(case, "skipped", {"message": sentence})
    else:
        Xml.SubElement(case, "system-out").text = f"warning: {sentence}" if outcome == "warned" else sentence
    return case


def _iteration(metrics: Mapping[str, Any]) -> Xml.Element:
    case = junit_case("run", f"iteration {metrics['iteration']} complete")
    missing = {n: s["n_missing"] for n, s in metrics["overall"]["scores"].items() if "n_missing" in s}
    if missing:
        text = xml_text("; ".join(f"{name}: {whole(n)} cases are not measured" for name, n in missing.items()))
        Xml.SubElement(case, "failure", {"type": "incomplete", "message": text}).text = text
    if texts := warning_texts(metrics):
        Xml.SubElement(case, "system-out").text = xml_text("\n".join(f"warning: {text}" for text in texts))
    return case


def junit_case(group: str, name: str) -> Xml.Element:
    """An empty test case, which has passed."""
    return Xml.Element("testcase", {"classname": xml_text(group), "name": xml_text(name), "time": "0"})


def _texts(attributes: Mapping[str, int]) -> dict[str, str]:
    return {key: str(value) for key, value in attributes.items()}


def _count(cases: Sequence[Xml.Element], element: str) -> int:
    return sum(case.find(element) is not None for case in cases)


def _facts(metrics: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """What identifies the run: the file is read without its folder."""
    if not metrics:
        return []
    last = metrics[-1]
    counts = [("cases", whole(last["n_cases"])), ("iterations", str(len(metrics)))]
    return [("signature", on_one_line(last["signature"], 4000)), *counts]


def xml_text(text: str) -> str:
    """The text without what XML cannot hold, and with control characters shown."""
    return _NO_XML.sub(lambda match: f"\\u{ord(match[0]):04x}", printable(text))


def comparison_junit(document: Mapping[str, Any]) -> str:
    """A test suite per candidate, a test case per headline score: it fails where the score is worse.

    Better and same pass, with the figures in the output; an undecided score is skipped: it shows nothing, good or bad.
    """
    suites = []
    for comparison in document["comparisons"]:
        name = f"{side_label(document['base'])} -> {side_label(document['candidates'][comparison['candidate']])}"
        scores = {key: score for key, score in comparison["scores"].items() if score["headline"]}
        cases = [_score(key, score) for key, score in {**scores, **comparison["operations"]}.items()]
        suites.append((name, [("verdict", comparison["verdict"]["sentence"])], cases))
    return junit_document(suites)


def _score(name: str, score: Mapping[str, Any]) -> Xml.Element:
    case, text = junit_case("compare", name), xml_text(f"{score['state']}: {difference_text(score)}")
    if score["state"] == "worse":
        Xml.SubElement(case, "failure", {"type": "worse", "message": text}).text = text
    elif score["state"] == "inconclusive":
        Xml.SubElement(case, "skipped", {"message": xml_text(f"{text}; {undecided_text(score)}")})
    else:
        Xml.SubElement(case, "system-out").text = text
    return case

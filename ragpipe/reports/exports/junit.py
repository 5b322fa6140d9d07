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
from ragpipe.reports.number_format import whole

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
    counts = {"tests": len(cases), "failures": _count(cases, "failure"), "skipped": _count(cases, "skipped")}
    attributes = {key: str(value) for key, value in {**counts, "errors": 0, "time": 0}.items()}
    totals = {key: value for key, value in attributes.items() if key != "skipped"}
    root = Xml.Element("testsuites", {"name": "ragpipe", **totals})
    suite = Xml.SubElement(root, "testsuite", {"name": _text(name), **attributes})
    properties = Xml.SubElement(suite, "properties")
    for key, value in _facts(metrics):
        Xml.SubElement(properties, "property", {"name": key, "value": _text(value)})
    suite.extend(cases)
    Xml.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + Xml.tostring(root, encoding="unicode") + "\n"


def _gate(gate: Mapping[str, Any]) -> Xml.Element:
    outcome, sentence = gate["outcome"], _text(str(gate["sentence"]))
    case = _case(f"gates.{gate['tier']}", str(gate["name"]))
    if outcome == "blocked":
        Xml.SubElement(case, "failure", {"type": _text(gate["verdict"]), "message": sentence}).text = sentence
    elif gate["tier"] == "diagnostic" or gate["verdict"] == "not_applicable":
        Xml.SubElement(case, "skipped", {"message": sentence})
    else:
        Xml.SubElement(case, "system-out").text = f"warning: {sentence}" if outcome == "warned" else sentence
    return case


def _iteration(metrics: Mapping[str, Any]) -> Xml.Element:
    case = _case("run", f"iteration {metrics['iteration']} complete")
    missing = {n: s["n_missing"] for n, s in metrics["overall"]["scores"].items() if "n_missing" in s}
    if missing:
        text = _text("; ".join(f"{name}: {whole(n)} cases are not measured" for name, n in missing.items()))
        Xml.SubElement(case, "failure", {"type": "incomplete", "message": text}).text = text
    if metrics["warnings"]:
        Xml.SubElement(case, "system-out").text = _text("\n".join(f"warning: {text}" for text in metrics["warnings"]))
    return case


def _case(group: str, name: str) -> Xml.Element:
    return Xml.Element("testcase", {"classname": _text(group), "name": _text(name), "time": "0"})


def _count(cases: Sequence[Xml.Element], element: str) -> int:
    return sum(case.find(element) is not None for case in cases)


def _facts(metrics: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """What identifies the run: the file is read without its folder."""
    if not metrics:
        return []
    last = metrics[-1]
    counts = [("cases", whole(last["n_cases"])), ("iterations", str(len(metrics)))]
    return [("signature", on_one_line(last["signature"], 4000)), *counts]


def _text(text: str) -> str:
    """The text without what XML cannot hold, and with control characters shown."""
    return _NO_XML.sub(lambda match: f"\\u{ord(match[0]):04x}", printable(text))

"""`comparison.junit.xml`: the headline scores as test cases, for the CI systems that show such files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from xml.etree import ElementTree as Xml

from ragpipe.reports.comparison_summary import side_label, undecided_text
from ragpipe.reports.difference_figures import difference_text
from ragpipe.reports.exports.junit import junit_case, junit_document, xml_text


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

"""Human labels of ExpertQA as the judge's replies, through the real metric: the figures of EXPECTED.json come out."""

from __future__ import annotations

import json
from collections import defaultdict
from fractions import Fraction

import pytest

from ragpipe.testing.scripted import ScriptedJudge, make_case, score_of, shipped_metric


def _case(record):
    """One answer: a chunk for each claim that has evidence, and a citation from the claim to it."""
    claims = record["claims"]
    with_evidence = [claim for claim in claims if claim["evidence"]]
    chunks = [{"id": f"c{i}", "text": "\n".join(claim["evidence"])} for i, claim in enumerate(with_evidence, 1)]
    citations = [
        {"marker": f"[{i}]", "chunk_id": f"c{i}", "text": f"{i}. {claim['claim_string']}"}
        for i, claim in enumerate(with_evidence, 1)
    ]
    case = make_case(record["answer_string"], chunks=chunks, citations=citations)

    def reply(question):
        if question.step == "coverage":
            return {
                "claims": [
                    {"claim": f"{i}. {c['claim_string']}", "cited": bool(c["evidence"])} for i, c in enumerate(claims)
                ]
            }
        asked = [with_evidence[int(item["text"].split(".")[0]) - 1] for item in question.values["citations"]]
        return {
            "verdicts": [{"index": i, "accurate": claim["support"] == "Complete"} for i, claim in enumerate(asked, 1)]
        }

    return case, reply


@pytest.mark.slow
def test_expertqa(real_data):
    expected = json.loads((real_data / "EXPECTED.json").read_text(encoding="utf-8"))
    expected = next(block for block in _blocks(expected, "expertqa") if "coverage" in block.get("all", {}))
    sums = defaultdict(lambda: [Fraction(0)] * 4)
    metric = shipped_metric("citation")
    for line in (real_data / "expertqa" / "rand_val.jsonl").read_text(encoding="utf-8").split("\n"):
        for system, record in json.loads(line)["answers"].items() if line else ():
            case, reply = _case(record)
            scores = score_of(metric, case, ScriptedJudge(reply))
            claims, cited = len(record["claims"]), len(case.output.citations)
            for name in ("all", f"system {system}"):
                row = (
                    claims,
                    cited,
                    _count(scores["citation_coverage"], claims),
                    _count(scores["citation_accuracy"], cited),
                )
                sums[name] = [a + b for a, b in zip(sums[name], row, strict=True)]
            assert scores["citation_valid"].value in (0 if not cited else 1, None)
    assert set(sums) == {name for name in expected if name == "all" or name.startswith("system ")}
    for name, (claims, cited, covered, accurate) in sums.items():
        assert claims == expected[name]["claims"]
        assert cited == expected[name]["with_evidence"]
        assert float(covered / claims) == pytest.approx(expected[name]["coverage"], abs=5e-7)
        assert float(accurate / cited) == pytest.approx(expected[name]["accuracy"], abs=5e-7)


def _count(score, all_):
    """How many of all a share stands for; none where the answer declined or cites nothing."""
    return Fraction(score.value or 0).limit_denominator(1000) * all_


def _blocks(node, name):
    if isinstance(node, dict):
        for key, inner in node.items():
            if key == name:
                yield inner
            yield from _blocks(inner, name)

"""Claims in the details of a score: where each quote of the judge stands, and what is said of quotes that stand nowhere."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragpipe.core.text_match import normalise, occurs, quote_pieces
from ragpipe.metrics.shared.claim_details import JudgedClaim, claim_details
from ragpipe.testing.scripted import ScriptedJudge, make_case, score_of, shipped_metric

HARBOUR = "The harbour opened in 1803. It has a slate roof, and the harbour is deep."
CHURCH = "The church\nstands  north of it; it opened in 1901."
CASE = make_case("It opened in 1803.", chunks=[{"id": "h", "text": HARBOUR}, {"id": "k", "text": CHURCH}])
V1, V2 = ({"prompts": {"extract": "v1", "verify": version, "combined": version}} for version in ("v1", "v2"))


def place(chunk: str, rank: int, start: int, end: int) -> dict[str, Any]:
    return {"chunk": chunk, "rank": rank, "start": start, "end": end}


@pytest.mark.parametrize(
    ("quotes", "places"),
    [
        pytest.param(["The harbour opened in 1803"], [[place("h", 1, 0, 26)]], id="one quote"),
        pytest.param(
            ["slate roof", "north of it"], [[place("h", 1, 37, 47)], [place("k", 2, 19, 30)]], id="quotes in two chunks"
        ),
        pytest.param(["opened in"], [[place("h", 1, 12, 21), place("k", 2, 35, 44)]], id="a quote in two chunks"),
        pytest.param(["the harbour"], [[place("h", 1, 0, 11)]], id="twice in a chunk: the first time"),
        pytest.param(
            ["It has ... deep"], [[place("h", 1, 28, 34), place("h", 1, 68, 72)]], id="an elision: each of its pieces"
        ),
        pytest.param(["north ... slate"], [[]], id="pieces in two chunks are no quote"),
        pytest.param(["THE CHURCH STANDS"], [[place("k", 2, 0, 17)]], id="case and white space do not count"),
        pytest.param(["the tower"], [[]], id="in no context"),
        pytest.param(["the tower", "slate"], [[], [place("h", 1, 37, 42)]], id="one of two in no context"),
        pytest.param(["...", "-"], [[], []], id="no word"),
        pytest.param([], [], id="no quote"),
    ],
)
def test_every_quote_has_its_places(quotes: list[str], places: list[list[dict[str, Any]]]) -> None:
    for supported, verdict in ((True, "supported"), (False, "contradicted"), (False, "not_supported"), (False, None)):
        claim = JudgedClaim("a", supported, tuple(quotes), verdict=verdict)
        (row,) = claim_details([claim], CASE, [])["claims"]
        assert row["evidence"] == [{"quote": q, "places": p} for q, p in zip(quotes, places, strict=True)]
        assert row.get("evidence_found") == (
            None if verdict in ("not_supported", None) and not supported else any(places)
        )


def details_of(verdicts: list[dict[str, Any]], **parameters: Any) -> dict[str, Any]:
    """The details of faithfulness by these verdicts on the claims a, b, c ..."""
    claims = {"claims": list("abcdefgh"[: len(verdicts)])}
    rows = [{"index": index, **verdict} for index, verdict in enumerate(verdicts, 1)]
    score = score_of(shipped_metric("faithfulness", **parameters), CASE, ScriptedJudge([claims, {"verdicts": rows}]))
    assert score["faithfulness"].value == score["faithfulness"].details["supported"] / len(verdicts)
    return {"reason": score["faithfulness"].reason, **score["faithfulness"].details}


SUPPORTED = {"verdict": "supported", "evidence": ["slate roof"]}
UNSHOWN = {"verdict": "supported", "evidence": ["tile roof"]}
SILENT = {"verdict": "not_supported", "evidence": []}
DECIDED = {"verdict": "not_supported", "evidence": ["in 1901"]}
CONTRADICTED = {"verdict": "contradicted", "evidence": ["opened in 1803"]}
INVENTED = {"verdict": "contradicted", "evidence": ["opened in 1804"]}
BARE = {"verdict": "contradicted", "evidence": []}


@pytest.mark.parametrize(
    ("verdicts", "reason", "contradicted", "missing", "flags"),
    [
        ([SUPPORTED, SILENT], "1 of 2 claims are supported", 0, (0, 0), []),
        ([SUPPORTED, CONTRADICTED], "1 of 2 claims are supported, 1 contradicted", 1, (0, 0), []),
        ([UNSHOWN, SUPPORTED], "2 of 2 claims are supported", 0, (1, 0), ["evidence_not_found"]),
        ([INVENTED, SILENT], "0 of 2 claims are supported, 1 contradicted", 1, (0, 1), ["contradiction_not_found"]),
        ([BARE], "0 of 1 claims are supported, 1 contradicted", 1, (0, 1), ["contradiction_not_found"]),
        (
            [UNSHOWN, BARE, CONTRADICTED, INVENTED],
            "1 of 4 claims are supported, 3 contradicted", 3, (1, 2), ["evidence_not_found", "contradiction_not_found"],
        ),
    ],
)  # fmt: skip
def test_contradicted_claims_are_counted_and_those_without_a_passage_flagged(
    verdicts: list[dict[str, Any]], reason: str, contradicted: int, missing: tuple[int, int], flags: list[str]
) -> None:
    details = details_of(verdicts, **V2)
    assert (details["reason"], details["contradicted"], details["flags"]) == (reason, contradicted, flags)
    assert (details["evidence_not_found"], details["contradiction_not_found"]) == missing
    assert [row["verdict"] for row in details["claims"]] == [verdict["verdict"] for verdict in verdicts]


def test_a_claim_that_is_not_supported_keeps_the_passage_that_decides() -> None:
    (row,) = details_of([DECIDED], **V2)["claims"]
    assert row["evidence"] == [{"quote": "in 1901", "places": [place("k", 2, 42, 49)]}]
    assert "evidence_found" not in row


def test_a_judge_that_is_not_asked_says_nothing_of_contradictions() -> None:
    """Version 1 of the prompt knows supported and not supported: a quote against a claim makes it no contradiction."""
    verdicts = [{"supported": False, "evidence": "opened in 1803"}, {"supported": True, "evidence": "tile"}]
    details = details_of(verdicts, **V1)
    assert details["reason"] == "1 of 2 claims are supported"
    assert not details.keys() & {"contradicted", "contradiction_not_found"}
    assert details["claims"] == [
        {
            "claim": "a", "reason": "", "supported": False,
            "evidence": [{"quote": "opened in 1803", "places": [place("h", 1, 12, 26)]}],
        },
        {
            "claim": "b", "reason": "", "supported": True, "evidence_found": False,
            "evidence": [{"quote": "tile", "places": []}],
        },
    ]  # fmt: skip
    assert details["flags"] == ["evidence_not_found"]


def test_of_several_verdicts_on_a_claim_the_worst_counts() -> None:
    rows = [
        ("a", "supported"),
        ("b", "contradicted"),
        ("a", "not_supported"),
        ("a", "contradicted"),
        ("b", "supported"),
    ]
    reply = {"claims": [{"claim": claim, "verdict": verdict} for claim, verdict in rows]}
    metric = shipped_metric("faithfulness", steps="combined", **V2)
    details = score_of(metric, CASE, ScriptedJudge([reply]))["faithfulness"].details
    assert [(row["claim"], row["verdict"]) for row in details["claims"]] == [
        ("a", "contradicted"),
        ("b", "contradicted"),
    ]


def test_where_nothing_was_retrieved_no_claim_is_contradicted() -> None:
    reply = {"claims": [{"claim": "a", "verdict": "contradicted", "evidence": ["opened in 1803"]}]}
    metric = shipped_metric("faithfulness", steps="combined", **V2)
    score = score_of(metric, make_case("It opened.", chunks=[]), ScriptedJudge([reply]))["faithfulness"]
    assert (score.reason, score.details["flags"]) == ("0 of 1 claims are supported", ["no_context_retrieved"])
    assert score.details["claims"] == [
        {"claim": "a", "evidence": [], "reason": "nothing was retrieved", "supported": False}
    ]


LETTERS = st.text(
    "abAB é\n\t\"'-.…\u00ad\u200b\u2019\u201c\u2014\u00a0", max_size=40
)  # every sign folds to one, or to none


@pytest.mark.slow
@given(st.lists(LETTERS, min_size=1, max_size=3), st.lists(LETTERS), st.integers(0, 40), st.integers(1, 12))
def test_every_place_cut_from_its_chunk_is_the_quote(
    texts: list[str], quotes: list[str], start: int, length: int
) -> None:
    quotes = [*quotes, *(text[start : start + length] for text in texts)]
    case = make_case(chunks=[{"id": f"c{rank}", "text": text} for rank, text in enumerate(texts, 1)])
    details = claim_details([JudgedClaim("a", True, tuple(quotes))], case, [])
    for row in details["claims"][0]["evidence"]:
        chunks: dict[str, list[str]] = {}
        for found in row["places"]:
            assert found["chunk"] == f"c{found['rank']}"
            text = texts[found["rank"] - 1][found["start"] : found["end"]]
            chunks.setdefault(found["chunk"], []).append(normalise(text))
        assert list(chunks) == [f"c{n}" for n, text in enumerate(texts, 1) if occurs(row["quote"], [normalise(text)])]
        assert all(pieces == quote_pieces(row["quote"]) for pieces in chunks.values())

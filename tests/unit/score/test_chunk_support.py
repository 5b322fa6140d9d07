"""Which chunk carries which claim: the proposal of llamaindex-evaluators.md with quotes, counted by hand."""

from pathlib import Path
from typing import Any

import pytest

from ragpipe.core.sample import Case, Chunk, Output, Sample
from ragpipe.core.score import ScoreSpec
from ragpipe.metrics.shared.claim_metric import JudgedClaim, claim_details
from ragpipe.report.case_views import support_lines
from ragpipe.report.chunk_section import chunks_section
from ragpipe.report.report_data import ReportData
from ragpipe.score.chunk_support import chunk_support
from ragpipe.score.iterations import final_metrics
from ragpipe.score.settings import ScoringSettings
from tests.support.reports import markdown_of, report_of
from tests.support.run_tables import Row, score, score_iterations, stored, write_run

CHUNKS = [
    Chunk(id="p", rank=1, doc_type="entities", text="# Short-Term Incentive Program (STIP)\nAuthor: Arbitrum Foundation\n## Tally On-chain Vote\nStatus: executed"),
    Chunk(id="s", rank=2, doc_type="reports", text="# Short-Term Incentive Program (STIP)\n## Snapshot Temperature Check\nStatus: closed"),
    Chunk(id="f", rank=3, doc_type="reports", text="The STIP program allocated 50 million ARB tokens. Delegates raised concerns."),
    Chunk(id="x", rank=4, text="Treasure DAO proposed the Gaming Catalyst Program."),
]  # fmt: skip
AUTHOR = JudgedClaim("The Arbitrum Foundation proposed it.", True, ("Author: Arbitrum Foundation",))
NAME = JudgedClaim("STIP is an incentive program.", True, ("Short-Term Incentive Program (STIP)",))
VOTES = JudgedClaim("It passed both votes.", True, ("Snapshot Temperature Check", "Tally On-chain Vote"))
TOKENS = JudgedClaim("It allocated 50 million ARB.", True, ("allocated 50 million ARB ... concerns",))
TITLED = JudgedClaim("The STIP was executed.", True, ("Incentive Program (STIP)", "Status: executed"))
VAGUE = JudgedClaim("It was popular.", True, ("everybody liked it",))
VETOED = JudgedClaim("It was vetoed.", False, ("Status: executed",))


def details(*claims: JudgedClaim) -> dict[str, Any]:
    return claim_details(claims, Case(Sample(id="q", question="?"), Output(sample_id="q", chunks=CHUNKS)), [])


@pytest.mark.parametrize(("claims", "hows", "used", "chain"), [
    ((AUTHOR, VOTES, TOKENS), ["one", "spread", "one"], [0, 1, 2], [(0, 1), (1, 2), (2, 3)]),
    ((NAME, VETOED), ["redundant", "unsupported"], [0, 1], [(0, 1)]),
    ((TITLED, VAGUE), ["one", "not_found"], [0, 1], [(0, 1)]),  # of two quotes one chunk holds both
    ((VOTES,), ["spread"], [0, 1], [(1, 1)]),  # the first chunk alone does not support it
    ((VETOED, VAGUE), ["unsupported", "not_found"], [], []),  # NO to the end
])  # fmt: skip
def test_how_claims_are_carried(claims: tuple[JudgedClaim, ...], hows: list[str], used: list[int], chain: list[tuple[int, int]]) -> None:
    support = chunk_support(details(*claims), [(chunk.id, chunk.rank) for chunk in CHUNKS])
    assert ([claim.how for claim in support.claims], support.used, support.chain) == (hows, used, chain)


@pytest.mark.parametrize(("claims", "lines"), [
    (
        (AUTHOR, VOTES, TOKENS),
        ["YES from context 1 on: 1 of 3 claims with context 1, 2 with 2, 3 with 3", "carry nothing: 1 of 4 contexts (4)"],
    ),
    ((VETOED,), ["NO to the end: no context carries any of 1 claim", "carry nothing: 4 of 4 contexts (1, 2, 3, 4)"]),
])  # fmt: skip
def test_the_chain_in_words(claims: tuple[JudgedClaim, ...], lines: list[str]) -> None:
    support = chunk_support(details(*claims), [(chunk.id, chunk.rank) for chunk in CHUNKS])
    assert support is not None
    assert list(support_lines(support, [1, 2, 3, 4])) == lines


QUOTED: dict[str, Any] = {"claim": "c", "supported": True}


@pytest.mark.parametrize("other", [
    {}, {"claims": []}, {"claims": "none"}, {"claims": ["c"]}, {"claims": [QUOTED]},
    {"claims": [{**QUOTED, "evidence": ["quote"]}]}, {"claims": [{**QUOTED, "evidence": [{"quote": "q", "places": "here"}]}]},
])  # fmt: skip
def test_a_score_without_quotes_says_nothing(other: dict[str, Any]) -> None:
    assert chunk_support(other, [("p", 1)]) is None


def rows() -> list[Row]:
    found = {"a": details(AUTHOR, VOTES, TOKENS, NAME), "b": details(VETOED, VAGUE)}
    return [
        Row("q", method, {"faithfulness": 0.5, "other": 1}, output={"chunks": CHUNKS}, details={"faithfulness": found[method]})
        for method in ("a", "b")
    ]


# a: the entities chunk holds a quote of AUTHOR, VOTES and NAME, the reports chunks of VOTES and NAME, and of TOKENS: 6 pairs
OF_A = {
    "n_cases": 1, "claims": 4, "one": 2, "redundant": 1, "spread": 1, "not_found": 0, "unsupported": 0,
    "chunks": 4, "used": 3, "carried": 6, "unused_share": 0.25, "claims_per_used_chunk": 2.0,
    "by_doc_type": {
        "entities": {"n_cases": 1, "chunks": 1, "used": 1, "carried": 3},
        "reports": {"n_cases": 1, "chunks": 2, "used": 2, "carried": 3},
    },
}  # fmt: skip


@pytest.mark.slow
def test_metrics_json_counts_chunks_and_claims(tmp_path: Path) -> None:
    write_run(tmp_path, rows())
    metrics = score(tmp_path, [ScoreSpec("faithfulness"), ScoreSpec("other")])
    assert metrics["by"]["method"]["a"]["chunk_support"] == {"faithfulness": OF_A}
    overall = metrics["overall"]["chunk_support"]["faithfulness"]
    assert {name: overall[name] for name in ("claims", "not_found", "unsupported", "chunks", "used")} == {
        "claims": 6, "not_found": 1, "unsupported": 1, "chunks": 8, "used": 3,
    }  # fmt: skip
    assert overall["unused_share"] == 0.625
    page = markdown_of(report_of(chunks_section(ReportData(metrics, {}))))
    assert "| `faithfulness` | `a` | 1 | 4 | 2 (50.0%) | 1 (25.0%) | 1 (25.0%) | 0 | 0 | 4 | 1 (25.0%) | 2.00 |" in page
    assert "| `faithfulness` | `entities` | 2 | 2 | 1 (50.0%) | 3.00 |" in page


@pytest.mark.slow
def test_over_iterations_counts_are_summed_and_shares_follow(tmp_path: Path) -> None:
    score_iterations(tmp_path, [rows(), rows()], [ScoreSpec("faithfulness"), ScoreSpec("other")], ScoringSettings())
    folders = [tmp_path / f"iteration-{number}" for number in (1, 2)]
    single = stored(tmp_path, "metrics.json")
    final = final_metrics([single, single], [folder / "records.parquet" for folder in folders], ScoringSettings())
    of_a = final["by"]["method"]["a"]["chunk_support"]["faithfulness"]
    assert (of_a["claims"], of_a["unused_share"], of_a["claims_per_used_chunk"]) == (8, 0.25, 2.0)

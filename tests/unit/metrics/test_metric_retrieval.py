"""Retrieval: worked figures of the documents, labels of every form, and agreement with trec_eval."""

import itertools
import json
import math
import random
from statistics import fmean

import pytest
import pytrec_eval

from ragpipe.core.sample import Anchor
from ragpipe.metrics.shared.ranking import from_ids, rank_values
from ragpipe.testing.scripted import make_case, score_of, shipped_metric


def docs(*names, scores=None):
    """Chunks of the named documents, in this order."""
    found = [{"id": f"{name}/{i}", "doc_id": name} for i, name in enumerate(names)]
    return [c | {"score": s} for c, s in zip(found, scores, strict=True)] if scores else found


def place(heading, path="notes.md", **other):
    return {"rel_path": path, "heading_path": heading, **other}


def values(case, **parameters):
    return {
        name: s.value if s.status == "ok" else s.status for name, s in score_of(shipped_metric("retrieval", **parameters), case).items()
    }


LOG = [1 / math.log2(r + 1) for r in range(1, 20)]  # the discount of rank r at [r - 1]

# (what, fields of the case, parameters, what must come of it)
TABLE = [
    ("match at rank 1", {"chunks": docs("a", "b"), "relevant_docs": ["a"]}, {}, {"mrr": 1.0, "hit@1": 1, "precision@1": 1}),
    ("match at rank 3", {"chunks": docs("x", "y", "a"), "relevant_docs": ["a"]}, {},
     {"mrr": 1 / 3, "hit@1": 0, "hit@3": 1, "recall@1": 0, "recall@3": 1, "ndcg@3": LOG[2], "map@3": 1 / 3}),
    ("no match", {"chunks": docs("x"), "relevant_docs": ["a"]}, {}, {"mrr": 0, "hit@10": 0, "ndcg@10": 0, "retrieval_score": 0}),
    ("nothing retrieved", {"chunks": [], "relevant_docs": ["a"]}, {}, {"mrr": 0, "hit@10": 0, "precision@5": 0, "map@10": 0}),
    ("precision divides by k", {"chunks": docs("a", "b"), "relevant_docs": ["a", "b"]}, {},
     {"precision@1": 1, "precision@3": 2 / 3, "precision@5": 0.4, "precision@10": 0.2, "recall@3": 1}),
    ("the score of four", {"chunks": docs("x", "a"), "relevant_docs": ["a"]}, {},
     {"retrieval_score": 0.4 * 1 + 0.2 * 0.2 + 0.2 * 0.5 + 0.2 * LOG[1]}),
    ("other weights, other k", {"chunks": docs("x", "a"), "relevant_docs": ["a"]},
     {"weights": {"hit": 3, "mrr": 1}, "score_k": 1}, {"retrieval_score": 0.125}),
    ("repeated documents count once, at their best rank", {"chunks": docs("x", "x", "x", "a", "a"), "relevant_docs": ["a"]}, {},
     {"mrr": 0.5, "precision@3": 1 / 3, "recall@3": 1, "ndcg@3": LOG[1]}),
    ("unit chunk: every chunk has a rank, the gold item earns once",
     {"chunks": docs("x", "a", "a", "a"), "relevant_docs": ["a"]}, {"unit": "chunk"},
     {"mrr": 0.5, "precision@3": 2 / 3, "recall@3": 1, "ndcg@5": LOG[1], "map@5": 0.5}),
    ("relevant chunks", {"chunks": docs("a", "b"), "relevant_chunks": ["b/1"]}, {"unit": "chunk"}, {"mrr": 0.5, "hit@1": 0}),
    ("both forms: documents", {"chunks": docs("a", "b"), "relevant_chunks": ["b/1"], "relevant_docs": ["a"]}, {}, {"mrr": 1}),
    ("both forms: chunks", {"chunks": docs("a", "b"), "relevant_chunks": ["b/1"], "relevant_docs": ["a"]}, {"unit": "chunk"}, {"mrr": 0.5}),
    ("an empty list gives way", {"chunks": docs("a", "b"), "relevant_docs": [], "relevant_chunks": ["b/1"]}, {}, {"mrr": 0.5}),
    ("a document without id is its chunk", {"chunks": [{"id": "d7"}], "relevant_docs": ["d7"]}, {}, {"mrr": 1}),
    ("graded", {"chunks": docs("b", "a"), "relevant_docs": ["a", "b"], "gains": {"a": 3.0}}, {},
     {"ndcg@3": (1 * LOG[0] + 3 * LOG[1]) / (3 * LOG[0] + 1 * LOG[1]), "recall@1": 0.5, "map@3": 1}),
    ("gains alone", {"chunks": docs("b", "a"), "gains": {"a": 2.0, "b": 0.0}}, {}, {"mrr": 0.5, "recall@3": 1, "ndcg@3": LOG[1]}),
    ("a gain of 0 takes an id out", {"chunks": docs("b", "a"), "relevant_docs": ["a", "b"], "gains": {"b": 0.0}}, {}, {"mrr": 0.5}),
    # which kind of ids gains are
    ("gains by chunk", {"chunks": docs("x", "x", "x"), "gains": {"x/1": 1.0, "x/2": 2.0}}, {},
     {"mrr": 0.5, "recall@3": 1, "ndcg@3": (1 * LOG[1] + 2 * LOG[2]) / (2 * LOG[0] + 1 * LOG[1])}),
    ("gains by document, unit chunk", {"chunks": docs("x", "a", "a"), "gains": {"a": 2.0}}, {"unit": "chunk"},
     {"mrr": 0.5, "recall@3": 1, "precision@3": 2 / 3}),
    ("gains by both: the unit decides", {"chunks": docs("a", "b"), "gains": {"a": 1.0, "b/1": 1.0}}, {}, {"mrr": 1, "recall@3": 0.5}),
    ("gains by both, unit chunk", {"chunks": docs("a", "b"), "gains": {"a": 1.0, "b/1": 1.0}}, {"unit": "chunk"}, {"mrr": 0.5}),
    ("gains of nothing retrieved", {"chunks": docs("a"), "gains": {"z/1": 1.0}}, {}, {"mrr": 0, "recall@3": 0}),
    ("a gain of 0 names a kind too", {"chunks": docs("x", "x"), "gains": {"x/0": 0.0, "x/1": 1.0}}, {}, {"mrr": 0.5}),
    # documents by their paths
    ("a document without id is its path", {"chunks": [place("A", "b.md"), place("B", "b.md"), place("A"), place("B")], "relevant_docs": ["notes.md"]}, {},
     {"mrr": 0.5, "precision@3": 1 / 3, "recall@3": 1}),
    ("gains by path", {"chunks": [place("A", "b.md"), place("A")], "gains": {"notes.md": 2.0}}, {}, {"mrr": 0.5, "recall@3": 1}),
    ("an id goes before the path", {"chunks": [place("A", doc_id="d")], "relevant_docs": ["notes.md"]}, {}, {"mrr": 0}),
    ("a document without id may be its chunk", {"chunks": [place("A", "b.md"), place("A")], "relevant_docs": ["c2"]}, {}, {"mrr": 0.5}),
    ("gains by chunk, documents by path", {"chunks": [place("A"), place("B")], "gains": {"c2": 2.0}}, {}, {"mrr": 0.5}),
    ("a group of paths", {"chunks": [place("A", "b.md"), place("A")], "required_support_groups": [["notes.md"]]}, {},
     {"recall_all@1": 0, "recall_all@3": 1}),
    ("ranks, not positions", {"chunks": [{"id": "x", "rank": 2}, {"id": "a", "rank": 1}], "relevant_docs": ["a"]}, {}, {"mrr": 1}),
    ("given order ignores scores", {"chunks": docs("x", "a", scores=[0.1, 0.9]), "relevant_docs": ["a"]}, {}, {"mrr": 0.5}),
    ("trec order", {"chunks": docs("x", "a", scores=[0.1, 0.9]), "relevant_docs": ["a"]}, {"order": "trec"}, {"mrr": 1}),
    ("trec order: ties by id, descending", {"chunks": docs("a", "x", scores=[0.5, 0.5]), "relevant_docs": ["a"]}, {"order": "trec"}, {"mrr": 0.5}),
    ("trec order folds documents at their best score",
     {"chunks": docs("a", "x", "a", scores=[0.1, 0.5, 0.9]), "relevant_docs": ["a"]}, {"order": "trec"}, {"mrr": 1}),
    ("trec order without scores", {"chunks": docs("a"), "relevant_docs": ["a"]}, {"order": "trec"}, {"mrr": "skipped"}),
    ("a cut-off of 1000", {"chunks": docs("x", "a"), "relevant_docs": ["a", "z"]}, {"k": [1000]},
     {"recall@1000": 0.5, "precision@1000": 0.001, "map@1000": 0.25}),
    ("no labels", {"chunks": docs("a")}, {}, {"mrr": "skipped", "retrieval_score": "skipped"}),
    ("nothing is relevant", {"chunks": docs("a"), "relevant_docs": []}, {}, {"mrr": "skipped"}),
    ("all gains 0", {"chunks": docs("a"), "gains": {"a": 0.0}}, {}, {"mrr": "skipped"}),
    # anchors
    ("below the heading", {"chunks": [place("A > B > C")], "anchors": [place("A > B")]}, {}, {"mrr": 1}),
    ("a part, not a piece of text", {"chunks": [place("A > Bx")], "anchors": [place("A > B")]}, {}, {"mrr": 0}),
    ("above the heading", {"chunks": [place("A")], "anchors": [place("A > B")]}, {}, {"mrr": 0}),
    ("spaces and delimiters", {"chunks": [place("  A   one>B ")], "anchors": [place("A one  > B")]}, {}, {"mrr": 1}),
    ("another file", {"chunks": [place("A", "other.md")], "anchors": [place("A")]}, {}, {"mrr": 0}),
    ("no heading: the whole document", {"chunks": [place("A > B")], "anchors": [place(None)]}, {}, {"mrr": 1}),
    ("a chunk without heading", {"chunks": [place(None)], "anchors": [place("A")]}, {}, {"mrr": 0}),
    ("three chunks under one anchor", {"chunks": [place("A > 1"), place("A > 2"), place("A > 3")], "anchors": [place("A")]}, {},
     {"ndcg@3": 1, "recall@3": 1, "precision@3": 1, "map@3": 1, "mrr": 1}),
    ("one chunk under two anchors", {"chunks": [place("A > B")], "anchors": [place("A"), place("A > B")]}, {},
     {"recall@1": 1, "ndcg@1": 1, "ndcg@3": 1 / (LOG[0] + LOG[1]), "precision@1": 1}),
    ("an anchor twice is one", {"chunks": [place("A")], "anchors": [place("A"), place(" A ")]}, {}, {"recall@1": 1, "ndcg@10": 1}),
    ("snippet not asked for", {"chunks": [place("A", text="z")], "anchors": [place("A", snippets=["x y"])]}, {}, {"mrr": 1}),
    ("snippet missing", {"chunks": [place("A", text="z")], "anchors": [place("A", snippets=["x y"])]}, {"require_snippet": True}, {"mrr": 0}),
    ("one of the snippets", {"chunks": [place("A", text="an X\n Y here")], "anchors": [place("A", snippets=["q", "x y"])]},
     {"require_snippet": True}, {"mrr": 1}),
    ("anchors under trec order", {"chunks": [place("Z", score=0.1), place("A", score=0.9)], "anchors": [place("A")]}, {"order": "trec"}, {"mrr": 1}),
    ("anchors under trec order: ties by id, descending", {"chunks": [place("A", score=0.5), place("Z", score=0.5)], "anchors": [place("A")]},
     {"order": "trec"}, {"mrr": 0.5}),
    # several required supports
    ("all groups", {"chunks": docs("a", "x", "b"), "relevant_docs": ["a", "b"], "required_support_groups": [["a"], ["b"]]}, {},
     {"hit@1": 1, "recall_all@1": 0, "recall_all@3": 1}),
    ("a group is met by any member", {"chunks": docs("c", "a"), "relevant_docs": ["a", "b"], "required_support_groups": [["a"], ["b", "c"]]}, {},
     {"recall_all@3": 1, "precision@1": 1, "recall@3": 0.5, "hit@1": 0, "hit@3": 1, "mrr": 0.5, "precision@3": 2 / 3}),
    ("groups are the only labels", {"chunks": docs("x", "a", "a", "b"), "required_support_groups": [["a"], ["b", "c"]]}, {},
     {"recall_all@1": 0, "recall_all@3": 1, "precision@3": 2 / 3, "precision@1": 0, "hit@3": "skipped", "recall@3": "skipped",
      "ndcg@3": "skipped", "map@3": "skipped", "mrr": "skipped", "retrieval_score": "skipped"}),
    ("groups of chunks alone: every chunk has a rank", {"chunks": docs("a", "a"), "required_support_groups": [["a/1"]]}, {},
     {"recall_all@1": 0, "recall_all@3": 1, "precision@3": 1 / 3}),
    ("groups of anchors alone: two places in one document", {"chunks": [place("A"), place("B")],
                           "required_support_groups": [["nothing", Anchor(**place("B"))], [Anchor(**place("A"))]]}, {},
     {"recall_all@1": 0, "recall_all@3": 1, "precision@3": 2 / 3, "mrr": "skipped"}),
    ("groups alone, nothing retrieved", {"chunks": [], "required_support_groups": [["a"]]}, {}, {"recall_all@10": 0, "precision@1": 0}),
    ("an empty list gives way to groups", {"chunks": docs("a"), "relevant_docs": [], "required_support_groups": [["a"]]}, {},
     {"recall_all@1": 1, "precision@1": 1, "mrr": "skipped"}),
    ("empty groups alone", {"chunks": docs("a"), "required_support_groups": [[]]}, {}, {"recall_all@1": "skipped", "precision@1": "skipped"}),
    ("half of them", {"chunks": docs("a", "x"), "relevant_docs": ["a", "b"], "required_support_groups": [["a"], ["b"]]}, {},
     {"hit@10": 1, "recall_all@10": 0}),
    ("a group member by chunk id, folded", {"chunks": docs("x", "a", "a"), "relevant_docs": ["a"], "required_support_groups": [["a/2"]]}, {},
     {"recall_all@1": 0, "recall_all@3": 1}),
    ("groups of anchors", {"chunks": [place("A"), place("B")], "anchors": [place("A"), place("B")],
                           "required_support_groups": [["nothing", "c2"], ["c1"]]}, {}, {"recall_all@1": 0, "recall_all@3": 1}),
    ("not multi-hop", {"chunks": docs("a"), "relevant_docs": ["a"]}, {}, {"recall_all@5": "skipped", "hit@5": 1}),
    ("empty groups", {"chunks": docs("a"), "relevant_docs": ["a"], "required_support_groups": [[]]}, {}, {"recall_all@5": "skipped"}),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "parameters", "expected"), [pytest.param(*row[1:], id=row[0]) for row in TABLE])
def test_retrieval(fields, parameters, expected):
    found = values(make_case(**fields), **parameters)
    assert {name: found[name] for name in expected} == {
        name: value if isinstance(value, str) else pytest.approx(value, abs=1e-12) for name, value in expected.items()
    }


@pytest.mark.parametrize(("unit", "retrieved"), [("document", 1), ("chunk", 2)])
def test_gains_that_name_nothing_retrieved_are_of_the_unit(unit, retrieved):
    case = make_case(chunks=docs("a", "a"), gains={"z": 1.0})
    found = score_of(shipped_metric("retrieval", unit=unit), case)["mrr"]
    assert (found.value, found.details["retrieved"]) == (0, retrieved)


SPLIT = [place("H > S", text="x y"), place("H > T", text="y")]
NARROWER = [
    [place("H"), place("H > S")], [place(None), place("H > S")], [place("H"), place("H", snippets=["x"])],
    [place("H", snippets=["y", "x"]), place("H", snippets=["x"])],
]  # fmt: skip


@pytest.mark.parametrize("wide_and_narrow", NARROWER)
@pytest.mark.parametrize("order", [1, -1])
def test_a_chunk_earns_the_narrowest_anchor_in_whatever_order_they_are_written(wide_and_narrow, order):
    """Both chunks stand under the first anchor, one under the second: both gains can be earned, so the order is ideal."""
    found = values(make_case(chunks=SPLIT, anchors=wide_and_narrow[::order]), require_snippet=True)
    assert (found["ndcg@3"], found["map@3"], found["recall@1"]) == (1, 1, 1)


def test_measures_and_prefix_choose_the_names():
    metric = shipped_metric("retrieval", k=[5], measures=["recall", "hit"], prefix="chunk_")
    names = list(score_of(metric, make_case(chunks=docs("a"), relevant_docs=["a"])))
    assert names == ["chunk_recall@5", "chunk_hit@5", "chunk_mrr", "chunk_retrieval_score"]


NAMES = {"hit": "success", "recall": "recall", "precision": "P", "ndcg": "ndcg_cut", "map": "map_cut"}


def their_names(k):
    return {f"{ours}@{k}": f"{theirs}_{k}" for ours, theirs in NAMES.items()}


@pytest.mark.parametrize("seed", range(8))
def test_equals_pytrec_eval_on_random_graded_runs_with_ties(seed):
    draw = random.Random(seed)
    ids = [f"{'é' if i % 7 == 0 else 'd'}{i}" for i in range(40)]
    qrels, run = {}, {}
    for q in range(60):
        judged = draw.sample(ids, draw.randrange(1, 25))
        qrels[str(q)] = {d: draw.choice([0, 0, 1, 2, 3]) for d in judged} | {judged[0]: draw.choice([1, 4])}
        grid = draw.choice([3, 10**9])
        scale = draw.choice([1.0, 1e7])  # 1e7 and small steps: equal in single precision only
        run[str(q)] = {d: scale + draw.randrange(grid) / grid for d in draw.sample(ids, draw.randrange(1, 40))}
    cuts = [1, 2, 3, 5, 10, 1000]
    asked = {f"{theirs}.{','.join(map(str, cuts))}" for theirs in NAMES.values()} | {"recip_rank", "map", "ndcg"}
    theirs = pytrec_eval.RelevanceEvaluator(qrels, asked).evaluate(run)
    metric = shipped_metric("retrieval", k=cuts, order="trec")
    cases = [
        make_case(chunks=[{"id": d, "score": s} for d, s in run[q].items()], gains={d: float(g) for d, g in qrels[q].items()}) for q in run
    ]
    for q, scores in zip(run, metric.compute(cases), strict=True):
        found = {score.name: score for score in scores}
        pairs = {"mrr": "recip_rank", "map@1000": "map", "ndcg@1000": "ndcg"}
        for k in cuts:
            pairs = their_names(k) | pairs
        for ours, name in pairs.items():
            assert found[ours].value == pytest.approx(theirs[q][name], abs=1e-9), (q, ours)


def table(path):
    return [line.split() for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]


RUNS = itertools.product(("clapnq_dev", "mtrag_un"), ("bm25", "tfidf"))
FILES = [(f"shared {data} run.{run}", f"{data}/qrels.txt", f"{data}/run.{run}.trec") for data, run in RUNS]
FILES += [("trec_eval results.test", "trec_eval/qrels.test", "trec_eval/results.test")]


@pytest.mark.slow
@pytest.mark.parametrize(("block", "qrels_file", "run_file"), FILES, ids=[f[0] for f in FILES])
def test_equals_the_recorded_values_on_public_runs(real_data, block, qrels_file, run_file):
    expected = json.loads((real_data / "EXPECTED.json").read_text(encoding="utf-8"))["retrieval"][block]
    qrels, run = {}, {}
    for query, _, doc, gain in table(real_data / qrels_file):
        qrels.setdefault(query, {})[doc] = int(gain)
    for query, _, doc, _, score, _ in table(real_data / run_file):
        run.setdefault(query, {})[doc] = float(score)
    cuts = [1, 5, 10, 20, 100, 1000]
    metric = shipped_metric("retrieval", k=cuts, order="trec")
    scores = {}
    for query in sorted(set(run) & set(qrels)):
        gold = [doc for doc, gain in qrels[query].items() if gain > 0]
        case = make_case(
            chunks=[{"id": doc, "score": score} for doc, score in run[query].items()],
            gains={doc: float(gain) for doc, gain in qrels[query].items()},
            required_support_groups=[[doc] for doc in gold],
        )
        scores[query] = {name: score.value for name, score in score_of(metric, case).items()}
    assert len(scores) == expected["queries_in_both"]
    pairs = {f"recall_all@{k}": f"recall_all_{k}" for k in cuts}
    for k in cuts:
        pairs |= their_names(k)
    pairs |= {"mrr": "recip_rank", "map@1000": "map", "ndcg@1000": "ndcg"}
    means = expected["mean_over_intersection"]
    checked = [ours for ours, theirs in pairs.items() if theirs in means]
    assert len(checked) >= 19
    for ours in checked:
        assert fmean(s[ours] for s in scores.values()) == pytest.approx(means[pairs[ours]], abs=5.1e-7), ours
    for query, row in expected.get("per_query", {}).items():
        for ours in checked:
            if pairs[ours] in row:
                assert scores[query][ours] == pytest.approx(row[pairs[ours]], abs=5.1e-7), (query, ours)


def test_a_gain_below_zero_is_that_of_an_id_that_is_not_relevant():
    """As trec_eval takes it: no loss, in the ranking or in the ideal one. a is found at rank 2: DCG 1 / log2(3), ideal 1."""
    values = rank_values(from_ids([["x", "a"]], [{"a": 1.0, "b": -1.0, "x": -2.0}]), [2])
    assert values["recall@2"] == [1.0]
    assert values["ndcg@2"] == pytest.approx([1 / math.log2(3)])


@pytest.mark.parametrize(("fields", "parameters", "lines"), [
    ({"chunks": docs("a", "a", "b"), "relevant_docs": ["b", "z", "a"]}, {},
     ["found: a at rank 1, b at rank 2", "missing: 1 of 3 gold items: z"]),  # a's two chunks are one document
    ({"chunks": [{"id": "x"}, {"id": "y"}, {"id": "y"}], "relevant_chunks": ["y"]}, {"unit": "chunk"}, ["found: y at rank 2"]),
    ({"chunks": [], "relevant_docs": ["a"]}, {}, ["found: no gold item", "missing: 1 of 1 gold items: a"]),
    ({"chunks": [place("A > B", "n.md"), {"rel_path": "m.md"}], "anchors": [{"rel_path": "m.md"}, place("C", "n.md")]}, {},
     ["found: m.md at rank 2", "missing: 1 of 2 gold items: n.md # C"]),
])  # fmt: skip
def test_notes_name_what_was_found_at_which_rank_and_what_is_missing(fields, parameters, lines):
    assert list(shipped_metric("retrieval", **parameters).notes(make_case(**fields))) == lines

"""scope_miss, attribution_hit and recency_conflict: computed from folders, citations and labels."""

import pytest

from ragpipe.testing.scripted import make_case, score_of, shipped_metric

NEW, OLD = {"rel_path": "new.md", "role": "newer"}, {"rel_path": "old.md", "role": "older"}
NOTES = [{"rel_path": "new.md", "heading_path": "A"}, {"rel_path": "old.md"}, {"rel_path": "other.md"}]
ANCHOR = {"rel_path": "work/plans/q3.md", "heading_path": "Budget"}


def folders(selected, mode="on", anchors=(ANCHOR,), **other):
    return {"folder_mode": mode, "selected_folders": selected, "anchors": list(anchors), **other}


# (metric, what, case, parameters, value or (status, reason))
TABLE = [
    ("scope_miss", "in a selected folder", folders(["work"]), {}, 0),
    ("scope_miss", "in a folder below", folders(["x", "work/plans/"]), {}, 0),
    ("scope_miss", "left out", folders(["home", "work/other"]), {}, 1),
    ("scope_miss", "a piece of a name is no folder", folders(["wor", "work/plan"]), {}, 1),
    ("scope_miss", "one of two gold items is enough", folders(["home"], anchors=[ANCHOR, {"rel_path": "home/a.md"}]), {}, 0),
    ("scope_miss", "nothing selected", folders([]), {}, 1),
    ("scope_miss", "nothing selected, falls back", folders([], "on_with_fallback"), {}, 0),
    ("scope_miss", "left out, although it may fall back", folders(["home"], "on_with_fallback"), {}, 1),
    ("scope_miss", "the root", folders(["/"]), {}, 0),
    ("scope_miss", "this folder", folders(["."]), {}, 0),
    ("scope_miss", "other spelling", folders([".\\work\\plans"]), {}, 0),
    ("scope_miss", "documents that are paths", folders(["work"], anchors=[], relevant_docs=["work/a.md"]), {}, 0),
    ("scope_miss", "documents that are ids", folders(["work"], anchors=[], relevant_docs=["17"]), {}, ("skipped", "no_gold_paths")),
    ("scope_miss", "mode off", folders(["work"], "off"), {}, ("skipped", "no_folder_mode")),
    ("scope_miss", "no mode", folders(["work"], None), {}, ("skipped", "no_folder_mode")),
    ("scope_miss", "not recorded", folders(None), {}, ("skipped", "no_folder_selection_recorded")),
    ("scope_miss", "no labels", {"folder_mode": "on", "selected_folders": ["work"]}, {}, ("skipped", "no_relevance_labels")),
    ("attribution_hit", "cited", {"chunks": NOTES, "anchors": [NEW], "citations": ["c3", "c1"]}, {}, 1),
    ("attribution_hit", "cited something else", {"chunks": NOTES, "anchors": [NEW], "citations": ["c3"]}, {}, 0),
    ("attribution_hit", "cited nothing", {"chunks": NOTES, "anchors": [NEW], "citations": []}, {}, 0),
    ("attribution_hit", "a dangling citation", {"chunks": NOTES, "anchors": [NEW], "citations": [{"marker": "[7]"}]}, {}, 0),
    ("attribution_hit", "by document", {"chunks": [{"id": "x", "doc_id": "d"}], "relevant_docs": ["d"], "citations": ["x"]}, {}, 1),
    ("attribution_hit", "by path", {"chunks": [{"id": "x", "rel_path": "a.md"}], "relevant_docs": ["a.md"], "citations": ["x"]}, {}, 1),
    ("attribution_hit", "by a gain of a chunk", {"chunks": [{"id": "x", "doc_id": "d"}], "gains": {"x": 2.0}, "citations": ["x"]}, {}, 1),
    ("attribution_hit", "only groups", {"chunks": NOTES, "required_support_groups": [["c1"]], "citations": ["c1"]}, {}, ("skipped", "no_gold_items")),
    ("attribution_hit", "by chunk", {"chunks": [{"id": "x"}], "relevant_chunks": ["x"], "citations": ["x"]}, {}, 1),
    ("attribution_hit", "a gold id that was not retrieved", {"chunks": NOTES, "relevant_chunks": ["x"], "citations": ["x"]}, {}, 0),
    ("attribution_hit", "a mark without an id", {"chunks": NOTES, "relevant_chunks": ["c2"], "citations": [{"marker": "[2]"}]}, {}, 1),
    ("attribution_hit", "a mark of another rank", {"chunks": NOTES, "relevant_chunks": ["c2"], "citations": [{"marker": "[1]"}]}, {}, 0),
    ("attribution_hit", "a mark beyond the ranks", {"chunks": NOTES, "relevant_chunks": ["c2"], "citations": [{"marker": "[99]"}]}, {}, 0),
    ("attribution_hit", "no citation names a chunk", {"chunks": NOTES, "relevant_chunks": ["c2"], "citations": [{"marker": "see the notes"}]}, {}, ("skipped", "citations_name_no_chunk")),
    ("attribution_hit", "documents before chunks", {"chunks": [{"id": "x", "doc_id": "d"}], "relevant_docs": ["e"], "relevant_chunks": ["x"], "citations": ["x"]}, {}, 0),
    ("attribution_hit", "chunks before documents", {"chunks": [{"id": "x", "doc_id": "d"}], "relevant_docs": ["e"], "relevant_chunks": ["x"], "citations": ["x"]}, {"unit": "chunk"}, 1),
    ("attribution_hit", "snippet missing", {"chunks": NOTES, "anchors": [NEW | {"snippets": ["z"]}], "citations": ["c1"]}, {"require_snippet": True}, 0),
    ("attribution_hit", "not recorded", {"chunks": NOTES, "anchors": [NEW]}, {}, ("skipped", "no_citations_recorded")),
    ("attribution_hit", "not answerable", {"chunks": NOTES, "anchors": [NEW], "citations": [], "answerable": False}, {}, ("skipped", "not_answerable")),
    ("attribution_hit", "nothing is relevant", {"chunks": NOTES, "relevant_docs": [], "citations": []}, {}, ("skipped", "no_relevant_items")),
    ("attribution_hit", "no labels", {"chunks": NOTES, "citations": []}, {}, ("skipped", "no_relevance_labels")),
]  # fmt: skip

RULES = [
    ("cite_newer", ["c1"], 1), ("cite_newer", ["c1", "c2"], 1), ("cite_newer", ["c2"], 0), ("cite_newer", [], 0),
    ("cite_both", ["c2", "c1"], 1), ("cite_both", ["c1"], 0), ("cite_both", ["c2", "c3"], 0), ("cite_both", [], 0),
    (None, ["c1"], ("skipped", "no_recency_conflict_rule")),
]  # fmt: skip
TABLE += [
    (
        "recency_conflict",
        f"{rule} {cited}",
        {"chunks": NOTES, "anchors": [NEW, OLD], "recency_conflict_rule": rule, "citations": cited},
        {},
        expected,
    )
    for rule, cited, expected in RULES
]
CONFLICT = {"chunks": NOTES, "recency_conflict_rule": "cite_both"}
TABLE += [
    ("recency_conflict", "no roles", CONFLICT | {"anchors": [{"rel_path": "new.md"}], "citations": []}, {}, ("skipped", "no_anchor_with_role_newer_and_older")),
    ("recency_conflict", "one role", CONFLICT | {"anchors": [NEW], "citations": []}, {}, ("skipped", "no_anchor_with_role_older")),
    ("recency_conflict", "no citations", CONFLICT | {"anchors": [NEW, OLD]}, {}, ("skipped", "no_citations_recorded")),
    ("recency_conflict", "heading", CONFLICT | {"anchors": [NEW | {"heading_path": "B"}, OLD], "citations": ["c1", "c2"]}, {}, 0),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "fields", "parameters", "expected"), [pytest.param(r[0], *r[2:], id=f"{r[0]}: {r[1]}") for r in TABLE]
)
def test_sources(name, fields, parameters, expected):
    score = score_of(shipped_metric(name, **parameters), make_case(**fields))[name]
    found = (score.status, score.reason) if isinstance(expected, tuple) else score.value
    assert found == expected

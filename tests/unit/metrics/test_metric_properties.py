"""What must hold for any ranking, any heading and any quote."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragpipe.core.text_match import normalise, occurs
from ragpipe.metrics.shared.anchor_match import heading_parts, matches_anchor
from ragpipe.schema.sample import Anchor, Chunk
from ragpipe.testing.scripted import make_case, score_of, shipped_metric

HEADING = st.lists(st.sampled_from("ABC"), max_size=3).map(" > ".join)
PLACE = st.fixed_dictionaries({"rel_path": st.sampled_from(["a.md", "b.md"]), "heading_path": HEADING})
NAMES = st.sampled_from([f"d{i}" for i in range(8)])
METRICS = {unit: shipped_metric("retrieval", unit=unit, k=[1, 2, 3, 5, 10, 50]) for unit in ("document", "chunk")}


def check(case, unit):
    """All values in their range, and those that can only grow with k do."""
    found = {name: score.value for name, score in score_of(METRICS[unit], case).items()}
    for measure in ("hit", "recall", "map"):
        column = [found[f"{measure}@{k}"] for k in METRICS[unit].k]
        assert column == sorted(column)
    assert found["hit@50"] == (found["mrr"] > 0) == (found["recall@50"] > 0) == (found["ndcg@50"] > 0)
    assert all(found[f"recall@{k}"] <= found[f"hit@{k}"] for k in METRICS[unit].k)


@pytest.mark.slow
@given(st.lists(PLACE, max_size=12), st.lists(PLACE, min_size=1, max_size=5), st.sampled_from(["document", "chunk"]))
def test_anchored_rankings_stay_in_their_range(chunks, anchors, unit):
    check(make_case(chunks=chunks, anchors=anchors), unit)


@pytest.mark.slow
@given(
    st.lists(NAMES, max_size=12),
    st.dictionaries(NAMES, st.sampled_from([0.5, 1.0, 3.0]), min_size=1),
    st.sampled_from(["document", "chunk"]),
)
def test_rankings_of_ids_stay_in_their_range(ids, gains, unit):
    chunks = [{"id": name if unit == "chunk" else f"c{i}", "doc_id": name} for i, name in enumerate(ids)]
    check(make_case(chunks=chunks, gains=gains), unit)


@pytest.mark.slow
@given(st.lists(st.text("ab x", min_size=1), max_size=4), st.lists(st.text("ab x", min_size=1), max_size=4))
def test_a_heading_matches_anchor_every_prefix_of_itself_and_only_there(gold, own):
    chunk = Chunk(id="c", rank=1, rel_path="n.md", heading_path=">".join(own))
    anchor = Anchor(rel_path="n.md", heading_path=" > ".join(gold))
    parts, gold_parts = heading_parts(chunk.heading_path), heading_parts(anchor.heading_path)
    assert matches_anchor(chunk, anchor) == (parts[: len(gold_parts)] == gold_parts)
    whole = Anchor(rel_path="n.md", heading_path=" >  ".join(parts[: len(parts) // 2]))
    assert matches_anchor(chunk, whole)


@pytest.mark.slow
@given(st.text("abQ1 \n\u00e9\u2019'\u201c\"-\u2014,", max_size=60), st.integers(0, 60), st.integers(1, 60))
def test_a_piece_of_a_text_occurs_in_it_however_it_is_set(text, start, length):
    piece, texts = text[start : start + length], [normalise(text)]
    assert occurs(piece, texts) == any(c.isalnum() for c in piece)
    assert occurs(piece.upper().replace(" ", "\n "), texts) == any(c.isalnum() for c in piece)
    assert not occurs(text + "q", texts), "a quote that goes on after the end"

"""Cases that have every label and every part of an output, for asking a metric what it cannot do without."""

from __future__ import annotations

from ragpipe.schema.sample import Anchor, Case, Chunk, Citation, ConflictRule, Expected, Output, Sample

_TEXT = "The harbour of Altona was opened in 1881. It has four basins."


def _whole(*, answerable: bool, answer: str, rule: ConflictRule = "acknowledge_both") -> Case:
    """A case with every label; `answerable` sets the label of that name and the expected behaviour, `rule` the one for conflicts."""
    sample = Sample(
        id="q",
        question="When was the harbour opened, and how many basins does it have?",
        references=[_TEXT],
        relevant_docs=["d1"],
        relevant_chunks=["c1"],
        gains={"d1": 1},
        anchors=[Anchor(rel_path="a/1.md", role="newer"), Anchor(rel_path="a/2.md", role="older")],
        required_support_groups=[["d1", Anchor(rel_path="a/1.md")]],
        recency_conflict_rule=rule,
        answerable=answerable,
        expected=Expected(
            behavior="answer" if answerable else "reject",
            rejection_reason=None if answerable else "no_context",
            citations=["c1"],
            must_quote=True,
            context_has=2,
        ),
    )
    chunks = [
        Chunk(id="c1", doc_id="d1", rank=1, score=2.0, rel_path="a/1.md", text=_TEXT, policy="quote_only"),
        Chunk(id="c2", doc_id="d2", rank=2, score=1.0, rel_path="a/2.md", text="The town has a railway."),
    ]
    output = Output(
        sample_id="q",
        answer=answer,
        chunks=chunks,
        citations=[
            Citation(marker="[1]", chunk_id="c1", text=_TEXT),
            Citation(marker="[2]", chunk_id="c2", text=_TEXT),
        ],
        abstained=not answerable,
        folder_mode="on",
        selected_folders=["a"],
    )
    return Case(sample, output)


_ANSWER = f"- {_TEXT} [1]\n- It has four basins. [2]"
ANSWERABLE = _whole(answerable=True, answer=_ANSWER)
UNANSWERABLE = _whole(answerable=False, answer="I cannot find this in the documents.")
WHOLE_CASES = (ANSWERABLE, UNANSWERABLE, _whole(answerable=True, answer=_ANSWER, rule="cite_newer"))

"""How many of the sources that a right answer cites does the answer cite?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ragpipe.core.sample import Case, Sample
from ragpipe.core.score import Score
from ragpipe.metrics.base import Computed
from ragpipe.metrics.shared.citations import cited_chunks, name_no_chunk


class ExpectedCitationRecallMetric(Computed):
    """Cited expected sources / all expected sources of `expected.citations`, 0 to 1.

    An expected source is the id of a chunk or document, or a document's `rel_path`. It is cited when a recorded
    citation names a retrieved chunk of it. A name that the label repeats counts once. Skipped: cases without the label
    or with an empty list, without recorded citations, and cases whose citations all name no chunk, by its id or a
    marker `[n]` (`citations_name_no_chunk`). An answer that cites nothing is 0.
    """

    needs = frozenset({"citations"})
    reads = frozenset({"contexts"})
    reads_ids = True
    reads_cells = True
    version = 2

    def sample_skip_reason(self, sample: Sample) -> str | None:
        return super().sample_skip_reason(sample) if sample.expects.citations else "no_expected_citations"

    def skip_reason(self, case: Case) -> str | None:
        return super().skip_reason(case) or name_no_chunk(case)

    def explain_value(self, score: str, value: float, details: Mapping[str, Any]) -> str | None:
        cited, missing = len(details.get("cited", ())), len(details.get("missing", ()))
        return f"{cited} cited / {cited + missing} expected sources"

    def compute(self, cases: Sequence[Case]) -> Sequence[Score]:
        return [_score(case) for case in cases]


def _score(case: Case) -> Score:
    expected = list(dict.fromkeys(case.sample.expects.citations or ()))
    names = {name for chunk in cited_chunks(case) for name in (chunk.id, chunk.doc_id, chunk.rel_path) if name}
    cited = [name for name in expected if name in names]
    missing = [name for name in expected if name not in names]
    reason = f"not cited: {', '.join(missing[:5])}" if missing else None
    return Score(len(cited) / len(expected), reason=reason, details={"cited": cited, "missing": missing})

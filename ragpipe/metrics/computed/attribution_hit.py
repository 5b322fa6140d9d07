"""Does the answer cite at least one gold item?"""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field

from ragpipe.core.sample import Case, Sample
from ragpipe.core.score import Score, ScoreSpec
from ragpipe.metrics.base import Computed
from ragpipe.metrics.shared.citations import cited_chunks, name_no_chunk
from ragpipe.metrics.shared.ranking import RequireSnippet, Unit, gold_of, names_gold


class AttributionHitMetric(Computed):
    """1 when a chunk cited by the *answer* matches a gold item, else 0; the same match as in `retrieval`.

    `unit` says which labels come first; `require_snippet` is as in `retrieval`. A cited id that was not retrieved is
    no hit, gold or not: it is made up, and dangling in `citation` too. Needs labels and recorded citations (an empty
    list is 0). Skipped: cases whose citations all name no chunk, by its id or a marker `[n]`
    (`citations_name_no_chunk`), questions labelled as not answerable, where nothing is relevant, and cases whose only
    labels are required support groups (`no_gold_items`).
    """

    gives = ScoreSpec("", binary=True)
    needs = frozenset({"labels", "citations"})
    reads = frozenset({"contexts"})
    reads_ids = True
    reads_cells = True
    version = 2

    unit: Unit = Field(
        default="document", description="Which labels count first where a case has both: those of documents or of chunks."
    )
    require_snippet: RequireSnippet = False

    def sample_skip_reason(self, sample: Sample) -> str | None:
        if sample.answerable is False:
            return "not_answerable"
        if why := super().sample_skip_reason(sample):
            return why
        has_gold = names_gold(sample)
        return None if has_gold else "no_gold_items" if has_gold is None else "no_relevant_items"

    def skip_reason(self, case: Case) -> str | None:
        return super().skip_reason(case) or name_no_chunk(case)

    def compute(self, cases: Sequence[Case]) -> Sequence[Score]:
        return [self._score(case) for case in cases]

    def _score(self, case: Case) -> Score:
        gold = gold_of(case.sample, self.unit, chunks=case.contexts, require_snippet=self.require_snippet)
        cited = cited_chunks(case)
        matching = list(dict.fromkeys(chunk.id for chunk in cited if gold is not None and gold.matched(chunk)))
        details = {
            "cited": list(dict.fromkeys(chunk.id for chunk in cited)),
            "matching": matching,
            "gold": gold.names() if gold else [],
        }
        return Score(float(bool(matching)), details=details)

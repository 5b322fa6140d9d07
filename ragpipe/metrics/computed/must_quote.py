"""Does the answer quote a source that may only be quoted, where the label asks for it?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ragpipe.core.sample import Case, Sample
from ragpipe.core.score import Score, ScoreSpec
from ragpipe.metrics.base import Computed
from ragpipe.metrics.shared.citations import QuoteWords, find_verbatim


class MustQuoteMetric(Computed):
    """1 when the answer contains a verbatim quote of a retrieved `quote_only` chunk, else 0.

    A quote is a span in quotation marks that the chunk contains word for word (two words or more), or a run of
    `quote_words` of its words. Only for cases with `expected.must_quote: true`; 0 when no `quote_only` chunk was
    retrieved (`no_quote_only_chunk_retrieved`). Needs an answer.
    """

    gives = ScoreSpec("", binary=True)
    needs = frozenset({"answer"})
    reads = frozenset({"contexts"})
    reads_cells = True

    quote_words: QuoteWords = 6

    def sample_skip_reason(self, sample: Sample) -> str | None:
        return super().sample_skip_reason(sample) if sample.expects.must_quote else "no_quote_expected"

    def explain_value(self, score: str, value: float, details: Mapping[str, Any]) -> str | None:
        return f"1 with a quote, 0 without: {len(details.get('quotes', ()))} found"

    def compute(self, cases: Sequence[Case]) -> Sequence[Score]:
        return [self._score(case) for case in cases]

    def _score(self, case: Case) -> Score:
        chunks = [chunk for chunk in case.contexts if chunk.policy == "quote_only"]
        quotes = [
            {"chunk": chunk.id, "quote": span.text, "words": span.words, "marked": span.quoted}
            for chunk in chunks
            for span in find_verbatim(case.answer, chunk.text, self.quote_words).spans
        ]
        reason = None if quotes else "no_literal_quote" if chunks else "no_quote_only_chunk_retrieved"
        return Score(float(bool(quotes)), reason=reason, details={"quotes": quotes})

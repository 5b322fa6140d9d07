"""Does the answer respond to the question, in line with at least one chunk? A chain of questions over the chunks."""

from __future__ import annotations

from typing import Any

from ragpipe.metrics.shared.chunk_chain import ChunkChain
from ragpipe.schema.sample import Case


class ChunkRelevancyMetric(ChunkChain):
    """1 / 0: are question and answer together in line with at least one chunk?

    The same chain as `chunk_faithfulness`, but the judge sees the question too: an answer that is true to the chunks
    but about something else is a NO, and so is one whose parts come from two chunks. At most one call per chunk.
    Nothing retrieved: 0 (`no_context_retrieved`) without a call, or skipped (`no_claims`) where the answer only
    declines, by `patterns`. Needs an answer.
    """

    def case_values(self, case: Case) -> dict[str, Any]:
        return {"question": case.question, "answer": case.answer}

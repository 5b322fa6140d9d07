"""Does at least one chunk support the whole answer? A chain of questions over the chunks."""

from __future__ import annotations

from typing import Any

from ragpipe.metrics.shared.chunk_chain import ChunkChain
from ragpipe.schema.sample import Case


class ChunkFaithfulnessMetric(ChunkChain):
    """1 / 0: is the answer, taken alone, supported by at least one chunk?

    The judge does not see the question, so this measures invention only. It asks whether *one* chunk supports the
    *whole* answer: an answer whose parts come from different chunks can fail; `faithfulness` judges claim by claim. At
    most one call per chunk. Nothing retrieved: 0 (`no_context_retrieved`) without a call, or skipped (`no_claims`)
    where the answer only declines, by `patterns`. Needs an answer.
    """

    def case_values(self, case: Case) -> dict[str, Any]:
        return {"answer": case.answer}

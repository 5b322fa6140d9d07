"""Does at least one chunk support the whole answer? A chain of questions over the chunks."""

from __future__ import annotations

from typing import Any

from ragpipe.metrics.shared.chunk_chain import ChunkChain
from ragpipe.schema.sample import Case


class ChunkFaithfulnessMetric(ChunkChain):
    """1 / 0: is the answer, taken alone, supported by at least one chunk?

    The judge does not see the question, so this measures invention only. It asks whether *one* chunk supports the
    *whole* answer: facts that are spread over two chunks can never become a YES, however well each is supported. So it
    is strict on answers that combine sources, and says little of where they fail; `faithfulness` judges claim by claim
    against all contexts. At most one call per chunk. Nothing retrieved: 0 (`no_context_retrieved`) without a call, or
    skipped (`no_claims`) where the answer only declines, by `patterns`. Needs an answer.
    """

    def case_values(self, case: Case) -> dict[str, Any]:
        return {"answer": case.answer}

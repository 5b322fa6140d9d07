"""Does some chunk support the whole answer? A chain over the chunks."""

from __future__ import annotations

from typing import Any

from ragpipe.metrics.shared.chunk_chain import ChunkChain
from ragpipe.schema.sample import Case


class ChunkFaithfulnessMetric(ChunkChain):
    """1 / 0: is the answer, taken alone, supported by at least one chunk?

    The question is not shown, so this only asks whether something was made up. It asks whether *some* chunk supports
    the *whole* answer: an answer whose parts stand in different chunks can fail; `faithfulness` judges claim by claim.
    At most one call a chunk. Nothing retrieved: 0 (`no_context_retrieved`) without a call, or skipped (`no_claims`) where
    the answer only declines, by `patterns`. Needs an answer.
    """

    def information(self, case: Case) -> dict[str, Any]:
        return {"answer": case.answer}

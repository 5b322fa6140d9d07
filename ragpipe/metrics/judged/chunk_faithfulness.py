"""Does at least one chunk support the answer in a main fact, and contradict none? A chain of questions over the chunks."""

from __future__ import annotations

from typing import Any

from ragpipe.core.sample import Case
from ragpipe.metrics.shared.chunk_chain import ChunkChain


class ChunkFaithfulnessMetric(ChunkChain):
    """1 / 0: is the answer, taken alone, supported by at least one chunk?

    The judge does not see the question, so this measures invention only. A chunk supports the answer where it states a
    main fact of it and contradicts none: facts may be spread over several chunks. So it finds answers that are invented
    as a whole and little else; `faithfulness` judges claim by claim. The templates v2 ask whether one chunk supports the
    *whole* answer (`metrics=[one_chunk_suffices]`). At most one call per chunk. Nothing retrieved: 0
    (`no_context_retrieved`) without a call. An answer that only declines, by `patterns`, is skipped (`no_claims`). Needs
    an answer.
    """

    def case_values(self, case: Case) -> dict[str, Any]:
        return {"answer": case.answer}

"""Reading refusals without holding up the others: a user's pattern may take its whole second."""

from __future__ import annotations

import asyncio

from ragpipe.patterns.refusals import RefusalPatterns, RefusalReading, named_refusals, read_refusal


async def reading_of(answer: str, patterns: RefusalPatterns | str) -> RefusalReading:
    """`read_refusal` in a thread. Raises JudgeError when a pattern takes too long."""
    return await asyncio.to_thread(read_refusal, answer, named_refusals(patterns))

"""The journal's cost per record, flat or not, and how fast a restart passes over finished work.

    python benchmarks/resume.py

Goals: at most 20 us a journal record with flush, flat from 1,000 to 100,000; finished work skipped at 20,000 calls a second
or more. Baseline of the journal: the same lines with a bare `write` and `flush`.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from ragpipe.core.call import Call
from ragpipe.store.call_store import CallStore
from ragpipe.store.journal import Journal

ENTRY = {
    "sample_id": "q00001", "method": "rerank", "question": "What does the case say, and since when?", "case": "0123456789abcdef",
    "transient": False, "result": {"faithfulness": 0.8, "groundedness": 4}, "completed_at": "2026-01-01T00:00:00.000+00:00",
}  # fmt: skip


def journal(folder: Path) -> None:
    path = folder / "journal.jsonl"
    opened, count = Journal.open(path), 0
    for upto in (1_000, 10_000, 100_000):
        started, before = time.perf_counter(), count
        while count < upto:
            opened.append(ENTRY)
            count += 1
        ours = (time.perf_counter() - started) / (count - before) * 1e6
        bare = _bare(folder / "bare.jsonl", 10_000)
        print(
            f"journal, records {before + 1:>7,} to {count:>7,}: {ours:5.1f} us a record, {ours / bare:4.2f} x a bare write and flush ({bare:.1f} us)"
        )
    opened.close()


def _bare(path: Path, count: int) -> float:
    with open(path, "w", encoding="utf-8") as file:
        started = time.perf_counter()
        for _ in range(count):
            file.write(json.dumps(ENTRY) + "\n")
            file.flush()
    return (time.perf_counter() - started) / count * 1e6


async def look_ups(folder: Path, calls: int = 50_000, width: int = 256) -> None:
    store = CallStore(folder / "calls.sqlite", run_id="r")
    keys = [f"{i:064x}" for i in range(calls)]
    text = "x" * 400

    async def put(part: list[str]) -> None:
        for key in part:
            await store.get_or_claim(key)
            await store.put(Call(key, "", "m", "ok", text=text, tokens_in=1000, tokens_out=100))

    async def take(part: list[str]) -> None:
        for key in part:
            assert await store.get_or_claim(key) is not None

    for name, work in (("asked and stored", put), ("found again", take)):
        started = time.perf_counter()
        await asyncio.gather(*(work(keys[i::width]) for i in range(width)))
        seconds = time.perf_counter() - started
        print(f"call store, {calls:,} calls {name}, {width} wide: {calls / seconds:9,.0f} a second")
    store.close()


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        journal(Path(folder))
        asyncio.run(look_ups(Path(folder)))


if __name__ == "__main__":
    main()

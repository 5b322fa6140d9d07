"""What judging costs: CPU and time of a call beside raw aiohttp and litellm alone, calls and tokens a case, calls lost by a kill.

    python benchmarks/calls.py [--cases 200 1000] [--widths 16 64 256] [--latency-ms 300] [--small]

A local server of fixed latency answers whole runs of four metrics, six calls a case. CPU of a call is the margin between a small
and a large run, so that start and report are subtracted. The baselines send the messages of the large run in a bare loop, one
with aiohttp and one with litellm. Span: from the first arrival at the server to the last answer, over calls x latency / width
(Little's law). Calls, the most in flight and connections come from the server's log.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from measured import METRICS, MODEL, ROOT, judge_words, measure, say, write_judged_cases

from ragpipe.judge.pricing import count_tokens
from ragpipe.testing.openai_server import read_log, serving_in_subprocess

GOAL_SPAN = {16: 1.10, 64: 1.10, 256: 1.30}


class Session:
    """Runs of growing size against one server, whose log is read from where the last one ended."""

    def __init__(self, folder: Path, latency_ms: float):
        self.folder, self.latency_ms, self.log, self.read = folder, latency_ms, folder / "log.jsonl", 0

    def words(self, url: str, cases: int, width: int, client: str, *more: str) -> list[str]:
        data = self.folder / f"cases-{cases}.jsonl"
        if not data.exists():
            write_judged_cases(data, cases)
        name = f"{client}-{width}-{cases}-{len(more)}"
        return [
            "-m", "ragpipe", "dataset=jsonl", f"dataset.path={data}", METRICS, *judge_words(url, width, client),
            f"name={name}", f"output_dir={self.folder}/{name}", *more,
        ]  # fmt: skip

    def new_lines(self) -> list[dict[str, Any]]:
        lines = read_log(self.log)
        new, self.read = lines[self.read :], len(lines)
        return new

    def span(self, lines: list[dict[str, Any]], width: int) -> float:
        """Time of judging as a multiple of the ideal."""
        seconds = max(line["done"] for line in lines) - min(line["arrived"] for line in lines)
        return seconds / (len(lines) * self.latency_ms / 1000 / width)


def inputs_of(folder: Path) -> list[dict[str, Any]]:
    """The calls of a run: its messages, by key."""
    (path,) = folder.rglob("judge_inputs.parquet")
    rows = pq.read_table(path, columns=["key", "messages"]).to_pylist()
    return list({row["key"]: row for row in rows}.values())


async def bare(client: str, url: str, width: int, folder: Path) -> float:
    """CPU seconds of a bare loop that sends the messages of a run."""
    asked = [json.loads(row["messages"]) for row in inputs_of(folder)]
    async with _sender(client, url, width) as send:
        await send(asked[0])  # imports and the first connection are nobody's
        before, left = _cpu(), iter(asked)

        async def worker() -> None:
            for messages in left:
                await send(messages)

        await asyncio.gather(*(worker() for _ in range(width)))
        return _cpu() - before


class _sender:
    """One way to send messages, as an async context."""

    def __init__(self, client: str, url: str, width: int):
        self.client, self.url, self.width = client, url, width

    async def __aenter__(self) -> Callable[[Any], Awaitable[None]]:
        if self.client == "litellm":
            os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
            import litellm

            async def send(messages: Any) -> None:
                await litellm.acompletion(
                    model=f"openai/{MODEL}", api_base=self.url, api_key="x", messages=messages, temperature=0.0,
                    max_tokens=2048, max_retries=0, timeout=120,
                )  # fmt: skip

            return send
        import aiohttp

        self.session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=self.width))

        async def post(messages: Any) -> None:
            body = {"model": MODEL, "messages": messages, "temperature": 0.0, "max_tokens": 2048}
            async with self.session.post(self.url + "/chat/completions", json=body) as response:
                (await response.json())["choices"][0]["message"]["content"]

        return post

    async def __aexit__(self, *_: object) -> None:
        if self.client == "aiohttp":
            await self.session.close()


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def one_width(session: Session, url: str, width: int, sizes: tuple[int, int], client: str) -> None:
    """All figures of one client at one width."""
    small, large = sizes
    first = measure(session.words(url, small, width, client), session.folder)
    few = len(session.new_lines())
    words = session.words(url, large, width, client)
    second = measure(words, session.folder)
    lines = session.new_lines()
    margin = (second.cpu - first.cpu) / (len(lines) - few) * 1000
    beside = "aiohttp" if client == "direct" else "litellm"
    run = session.folder / f"{client}-{width}-{large}-0"
    done = measure([__file__, "--bare", beside, url, str(width), str(run)], session.folder)
    bare_lines = session.new_lines()[1:]
    bare_cpu = float(done.output.split()[-1]) / len(bare_lines) * 1000
    what = f"{client} client, {width} wide:"
    say(f"{what} CPU of a call", margin / bare_cpu, f"x {beside} ({bare_cpu:.2f} ms)", 3.0 if client == "direct" else 1.10)
    span, ideal = session.span(lines, width), session.span(bare_lines, width)
    say(f"{what} span of judging", span / ideal, f"x {beside} ({ideal:.2f} ideal)", GOAL_SPAN.get(width, 1.3))
    say(f"{what} most in flight", max(line["in_flight"] for line in lines), "requests", at_least=width)
    say(f"{what} connections", len({line["peer"] for line in lines}), "", at_most=width + 1)


def calls_and_tokens(session: Session, url: str, cases: int) -> None:
    """Calls and prompt tokens of the four metrics, in the documents' steps and combined."""
    combined = ["metrics.faithfulness.steps=combined", "metrics.context_recall.steps=combined"]
    for name, more, calls, tokens in (("in steps", [], 6, 7500), ("combined", combined, 4, None)):
        words = session.words(url, cases, 16, "direct", *more, *(["seed=1"] if not more else []))
        measure(words, session.folder)
        asked = len(session.new_lines())
        rows = inputs_of(Path(words[-1 - max(1, len(more))].removeprefix("output_dir=")))
        used = sum(count_tokens(message["content"], MODEL) for row in rows for message in json.loads(row["messages"]))
        say(f"four metrics {name}: calls", asked / cases, "a case", calls)
        say(f"four metrics {name}: prompt tokens", used / cases, "a case", tokens)


def killed(session: Session, url: str, cases: int, width: int) -> None:
    """A run is killed half-way and started again: what was asked twice can only have been in flight."""
    words = session.words(url, cases, width, "direct", "name=killed")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "BENCH_KEY": "none"}
    process = subprocess.Popen([sys.executable, *words], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while process.poll() is None and len(read_log(session.log)) - session.read < 3 * cases:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    measure(words, session.folder)
    counts = Counter(line["body"] for line in session.new_lines())
    say(f"kill -9 half-way, {width} wide: questions asked again", sum(counts.values()) - len(counts), "", width)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, nargs=2, default=[200, 1000], help="of the small and of the large run")
    parser.add_argument("--widths", type=int, nargs="+", default=[16, 64, 256])
    parser.add_argument("--latency-ms", type=float, default=300)
    parser.add_argument("--small", action="store_true", help="the smallest size: does it work?")
    parser.add_argument("--bare", nargs=4, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.bare:
        client, url, width, folder = args.bare
        print(asyncio.run(bare(client, url, int(width), Path(folder))))
        return
    if args.small:
        args.cases, args.widths, args.latency_ms = [10, 30], [8], 20
    with tempfile.TemporaryDirectory() as name:
        session = Session(Path(name), args.latency_ms)
        with serving_in_subprocess("--latency-ms", str(args.latency_ms), "--log", str(session.log)) as url:
            for client in ("direct", "litellm"):
                measure(session.words(url, 1, 16, client), session.folder)  # modules are compiled by a run that is not counted
                session.new_lines()
                for width in args.widths:
                    one_width(session, url, width, tuple(args.cases), client)
            calls_and_tokens(session, url, args.cases[0])
            killed(session, url, args.cases[0], 64)


if __name__ == "__main__":
    main()

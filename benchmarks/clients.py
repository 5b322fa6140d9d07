"""CPU and wall time of one judge call: ragpipe's live transport with both clients, a bare litellm loop, a bare aiohttp loop.

    python benchmarks/clients.py [--widths 16,64,256] [--latency-ms 200] [--rounds 8] [--only aiohttp,direct]

The server (ragpipe/testing/openai_server.py) and each client run in processes of their own: what one client leaves in memory
slows no other one. `wall/ideal`: wall time over calls x latency / width (Little's law). `cpu ms`: CPU time of the client's
process per call, imports and warm-up apart. Ratios stand beside: of the direct
client to bare aiohttp (goal <= 2.5) and to bare litellm (goal <= 1/6), of the litellm client to bare litellm (goal <= 1.15).
`peak` and `sockets` come from the server's log. Every call is another question of about 1,225 tokens; every client has made
`width` calls before the clock starts. By the server's log aiohttp and the direct client send the same bytes, and so do both
litellm rows.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from ragpipe.core.call import Payload
from ragpipe.judge.answer_type import answer_schema, without_defaults
from ragpipe.judge.answers import Grade15
from ragpipe.judge.live_transport import LiveTransport
from ragpipe.judge.pricing import count_tokens
from ragpipe.judge.question import Question, key_parts, question_key
from ragpipe.judge.settings import JudgeSettings
from ragpipe.testing.openai_server import read_log, serving_in_subprocess

MODEL = "openai/test-model-2024-07-18"
_SENTENCE = "The treasury of the organisation held three and a half million dollars at the end of the second quarter. "
_TEXT = _SENTENCE * 61
FORM = {
    "type": "json_schema",
    "json_schema": {"name": "answer", "strict": True, "schema": without_defaults(answer_schema(Grade15), strict=True)},
}
Ask = Callable[[int], Awaitable[None]]


def messages(number: int) -> tuple[dict[str, str], ...]:
    return (
        {"role": "system", "content": "You grade answers from 1 to 5. Reply with JSON."},
        {"role": "user", "content": f"{_TEXT}\nThe answer: number {number}."},
    )


def question(number: int) -> Question:
    payload = Payload(messages(number), answer_schema(Grade15))
    parts = key_parts(payload, {"judge": MODEL}, 1, 1)
    return Question(question_key(parts), payload, Grade15, MODEL, parts, "benchmark")


async def run(ask: Ask, calls: int, width: int, start: int) -> tuple[float, float]:
    """Wall and CPU seconds of `calls` calls by `width` workers."""
    numbers = iter(range(start, start + calls))

    async def worker() -> None:
        for number in numbers:
            await ask(number)

    wall, cpu = time.perf_counter(), time.process_time()
    await asyncio.gather(*(worker() for _ in range(width)))
    return time.perf_counter() - wall, time.process_time() - cpu


async def with_ragpipe(url: str, width: int, calls: int, client: str) -> tuple[float, float]:
    settings = JudgeSettings(model=MODEL, api_base=url, client=client, concurrency=width, max_calls=10**9)  # type: ignore[arg-type]
    live = LiveTransport(settings, run_id="benchmark")

    async def ask(number: int) -> None:
        async with live.slot():
            call = await live.ask(question(number), lambda payment: None)
        assert call.status == "ok", call.message

    try:
        await run(ask, width, width, 10**6)  # connections, import, output mode
        return await run(ask, calls, width, 0)
    finally:
        await live.close()


async def with_litellm(url: str, width: int, calls: int) -> tuple[float, float]:
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    import litellm

    async def ask(number: int) -> None:
        found = await litellm.acompletion(
            model=MODEL, api_base=url, api_key="none", messages=list(messages(number)), temperature=0.0, max_tokens=2048,
            max_retries=0, timeout=120, response_format=FORM,
        )  # fmt: skip
        assert found.choices[0].message.content

    await run(ask, width, width, 10**6)
    try:
        return await run(ask, calls, width, 0)
    finally:
        for client in list(litellm.in_memory_llm_clients_cache.cache_dict.values()):
            if hasattr(client, "close"):
                await client.close()
        litellm.in_memory_llm_clients_cache.flush_cache()


async def with_aiohttp(url: str, width: int, calls: int) -> tuple[float, float]:
    import aiohttp

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=width)) as session:

        async def ask(number: int) -> None:
            body = {"model": MODEL.removeprefix("openai/"), "messages": list(messages(number)), "temperature": 0.0, "max_tokens": 2048,
                    "response_format": FORM}  # fmt: skip
            async with session.post(url + "/chat/completions", json=body) as response:
                found: Any = await response.json()
            assert found["choices"][0]["message"]["content"]

        await run(ask, width, width, 10**6)
        return await run(ask, calls, width, 0)


SAME_BYTES = {"direct": "aiohttp", "ragpipe+litellm": "litellm"}
CONTENDERS: dict[str, Callable[[str, int, int], Awaitable[tuple[float, float]]]] = {
    "aiohttp": with_aiohttp,
    "direct": lambda url, width, calls: with_ragpipe(url, width, calls, "direct"),
    "litellm": with_litellm,
    "ragpipe+litellm": lambda url, width, calls: with_ragpipe(url, width, calls, "litellm"),
}


def measured(name: str, url: str, width: int, calls: int) -> tuple[float, float]:
    """Wall and CPU seconds of a client in a process of its own."""
    command = [sys.executable, __file__, "--child", name, url, str(width), str(calls)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stdout + done.stderr)
    wall, cpu = json.loads(done.stdout.strip().splitlines()[-1])
    return wall, cpu


def in_flight(log: list[dict[str, Any]], calls: int) -> tuple[int, float, int]:
    """Peak in flight, its mean share of the peak while work was left, and the sockets, of the last `calls` requests."""
    lines = sorted(log, key=lambda line: line["n"])[-calls:]
    peak = max(line["in_flight"] for line in lines)
    begin, end = lines[0]["arrived"] + 0.05, lines[-1]["arrived"]
    busy = sum(max(0.0, min(line["done"], end) - max(line["arrived"], begin)) for line in lines)
    return peak, busy / (end - begin) / peak, len({line["peer"] for line in lines})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--widths", default="16,64,256")
    parser.add_argument("--latency-ms", type=float, default=200.0)
    parser.add_argument("--rounds", type=int, default=8, help="calls = rounds x width")
    parser.add_argument("--only", default=",".join(CONTENDERS))
    parser.add_argument("--child", nargs=4, help=argparse.SUPPRESS)
    found = parser.parse_args()
    if found.child:
        name, url, width, calls = found.child
        print(json.dumps(asyncio.run(CONTENDERS[name](url, int(width), int(calls)))))
        return
    print(f"{count_tokens(_TEXT, MODEL):,} prompt tokens, {found.latency_ms:g} ms latency, {os.cpu_count()} cores, load "
          f"{os.getloadavg()[0]:.1f}")  # fmt: skip
    print(f"{'client':16} {'width':>5} {'calls':>6} {'wall/ideal':>10} {'cpu ms':>7} {'x aiohttp':>9} {'x litellm':>9} "
          f"{'peak':>5} {'full':>5} {'sockets':>7}")  # fmt: skip
    for width in map(int, found.widths.split(",")):
        cpus: dict[str, float] = {}
        sent: dict[str, set[str]] = {}
        for name in found.only.split(","):
            calls = found.rounds * width
            with tempfile.TemporaryDirectory() as folder:
                log = Path(folder) / "log.jsonl"
                with serving_in_subprocess("--latency-ms", str(found.latency_ms), "--log", str(log)) as url:
                    wall, cpu = measured(name, url, width, calls)
                lines = read_log(log)
            peak, full, sockets = in_flight(lines, calls)
            sent[name] = {line["body"] for line in lines}
            if sent.get(SAME_BYTES.get(name, name), sent[name]) != sent[name]:
                sys.exit(f"{name} did not send the bytes that {SAME_BYTES[name]} sends")
            cpus[name] = cpu / calls * 1000
            ideal = calls * found.latency_ms / 1000 / width
            ratios = [f"{cpus[name] / cpus[base]:9.2f}" if base in cpus else f"{'-':>9}" for base in ("aiohttp", "litellm")]
            print(f"{name:16} {width:5} {calls:6} {wall / ideal:10.2f} {cpus[name]:7.2f} {ratios[0]} {ratios[1]} {peak:5} "
                  f"{full:5.0%} {sockets:7}", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()

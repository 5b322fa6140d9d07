"""The whole of ragpipe on one-call cases against bare loops that send the same questions: wall / ideal and CPU per call.

    python benchmarks/pipeline.py [--latency-ms 200] [--waves 25] [--widths 16 64 256]

A local server answers after a fixed latency; ideal = calls x latency / width. Each client runs in a process of its own, so
that its CPU time is its own; both bare loops run in the same session as baselines. `ragpipe` is everything: cases read from
Parquet, prompts rendered and hashed, call store, journal, parts, tables written. All clients send the same questions with the
same parameters and response format, aiohttp and the direct client the same bytes (the server's log is compared); litellm
has made one call before the clock starts, in both of its rows.

Goals: CPU with the direct client <= 2.5 x raw aiohttp and <= 1/6 of litellm alone, through litellm <= 1.15 x litellm alone;
wall / ideal <= 1.10, 1.15, 1.35 at 16, 64, 256 wide, or <= 1.07, 1.10, 1.25 x raw aiohttp where that is more; peak in
flight = the limit; connections <= limit + 1.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

MODEL = "bench-2026-01-01"
CLIENTS = ("aiohttp", "litellm", "ragpipe-direct", "ragpipe-litellm")
WORDS = ["the", "quick", "brown", "fox", "jumps", "over", "a", "lazy", "dog", "while", "nobody", "looks", "at", "all"]


def case(i: int) -> tuple[Any, Any]:
    """A case with five contexts, about 1,200 prompt tokens."""
    from ragpipe.core.sample import Chunk, Output, Sample

    texts = [f"Passage {k} of case {i}. " + " ".join(WORDS[(i + k + w) % len(WORDS)] for w in range(190)) for k in range(5)]
    chunks = [Chunk(id=f"c{k}", rank=k + 1, text=text) for k, text in enumerate(texts)]
    return Sample(id=f"s{i}", question=f"What does case {i} say?"), Output(
        sample_id=f"s{i}", answer=f"Case {i} says a lot.", chunks=chunks
    )


def metric() -> Any:
    import yaml

    from ragpipe.core.resources import conf_dir, prompts_dir
    from ragpipe.judge.prompt_library import PromptLibrary
    from ragpipe.metrics.from_config import load_metric

    section = yaml.safe_load((conf_dir() / "metrics" / "groundedness.yaml").read_text(encoding="utf-8"))["groundedness"]
    return load_metric("groundedness", section, PromptLibrary([prompts_dir()]), [])


def judge(url: str, client: str, width: int) -> Any:
    """The settings of the judge."""
    from ragpipe.judge.settings import JudgeSettings

    os.environ["BENCH_KEY"] = "x"
    return JudgeSettings(
        model=f"openai/{MODEL}", api_base=url, api_key_env="BENCH_KEY", client=client, concurrency=width, max_calls=10**6,
    )  # fmt: skip


def bodies(calls: int) -> list[dict[str, Any]]:
    """The very questions that ragpipe asks, as the request bodies that it sends."""
    from ragpipe.core.call import Payload
    from ragpipe.core.sample import Case
    from ragpipe.judge.answer_type import answer_schema
    from ragpipe.judge.provider_state import OutputModeFallback
    from ragpipe.judge.question import Question
    from ragpipe.metrics.recording_judge import questions_of

    asking, modes = metric(), OutputModeFallback(judge("http://127.0.0.1/v1", "direct", 1))
    asked = []
    for i in range(calls):
        call = questions_of(asking, Case(*case(i)))[0]
        payload = Payload(call.prompt.render(**call.values), answer_schema(call.answer))
        question = Question("", payload, call.answer, MODEL, {}, "")
        asked.append({"model": MODEL, **modes.body(question, modes.form(question))})
    return asked


async def spread(work: Callable[[Any], Awaitable[None]], items: list[Any], width: int) -> None:
    """All items through `width` workers."""
    left = iter(items)

    async def worker() -> None:
        for item in left:
            await work(item)

    await asyncio.gather(*(worker() for _ in range(width)))


async def bare_aiohttp(url: str, calls: int, width: int, clock: Callable[[], None]) -> None:
    import aiohttp

    asked = [json.dumps(body).encode() for body in bodies(calls)]
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=width)) as session:

        async def one(body: bytes) -> None:
            headers = {"Authorization": "Bearer x", "Content-Type": "application/json"}
            async with session.post(url + "/chat/completions", data=body, headers=headers) as response:
                json.loads(await response.read())["choices"][0]["message"]["content"]

        clock()
        await spread(one, asked, width)
        clock()


async def with_litellm(url: str, body: dict[str, Any]) -> None:
    """One call of litellm's. The first one imports what it needs."""
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
    import litellm

    arguments = {key: value for key, value in body.items() if key != "model"}
    await litellm.acompletion(
        model=f"openai/{MODEL}", api_base=url, api_key="x", max_retries=0, num_retries=0, timeout=60, **arguments
    )  # fmt: skip


async def bare_litellm(url: str, calls: int, width: int, clock: Callable[[], None]) -> None:
    asked = bodies(calls)
    await with_litellm(url, asked[0])
    clock()
    await spread(lambda body: with_litellm(url, body), asked, width)
    clock()


async def whole(url: str, calls: int, width: int, clock: Callable[[], None], client: str) -> None:
    from ragpipe.judge.live_transport import LiveTransport
    from ragpipe.judge.session import JudgeSession
    from ragpipe.runs.judge_cases import JudgeStage
    from ragpipe.runs.load_dataset import load_dataset
    from ragpipe.runs.measured_cases import CaseReader
    from ragpipe.store.call_store import CallStore
    from ragpipe.store.progress import ProgressView
    from ragpipe.store.run_folder import RunFolder

    settings = judge(url, client, width)
    if client == "litellm":  # imports are not a client's cost per call
        await with_litellm(url, bodies(1)[0])
    else:
        import ragpipe.judge.http
        import ragpipe.judge.pricing  # noqa: F401
    with tempfile.TemporaryDirectory() as name:
        folder = RunFolder(Path(name, "run")).create()
        records = (SimpleNamespace(sample=s, output=o, where="") for s, o in map(case, range(calls)))
        load_dataset(records, samples=folder.samples, outputs=folder.outputs)
        iteration = folder.iteration(1).create()
        store = CallStore(Path(name, "calls.sqlite"), run_id="bench")
        session = JudgeSession(
            identity=settings.identity_of_judge(), label="bench", transport=LiveTransport(settings, run_id="bench"), store=store
        )  # fmt: skip
        reader = CaseReader(folder.samples, folder.outputs)
        view = ProgressView(iteration.progress, name="bench", iteration=1, total=calls)
        stage = JudgeStage(cases=reader, metrics=[metric()], session=session, folder=iteration, window=2 * width, view=view)
        clock()
        state = await stage.run()
        clock()
        await session.close()
        store.close()
        if state.errors:
            sys.exit(f"{state.errors} judgements failed")


def child(client: str, url: str, calls: int, width: int) -> None:
    """One client's run; prints wall and CPU seconds of the timed part."""
    marks: list[tuple[float, float]] = []

    def clock() -> None:
        used = resource.getrusage(resource.RUSAGE_SELF)
        marks.append((time.perf_counter(), used.ru_utime + used.ru_stime))

    if client == "aiohttp":
        asyncio.run(bare_aiohttp(url, calls, width, clock))
    elif client == "litellm":
        asyncio.run(bare_litellm(url, calls, width, clock))
    else:
        asyncio.run(whole(url, calls, width, clock, client.removeprefix("ragpipe-")))
    print(json.dumps([marks[1][0] - marks[0][0], marks[1][1] - marks[0][1]]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--latency-ms", type=float, default=200)
    parser.add_argument("--waves", type=int, default=25)
    parser.add_argument("--widths", type=int, nargs="+", default=[16, 64, 256])
    parser.add_argument("--clients", nargs="+", default=list(CLIENTS))
    parser.add_argument("--child", nargs=4, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        client, url, calls, width = args.child
        child(client, url, int(calls), int(width))
        return
    from ragpipe.testing.openai_server import read_log, serving_in_subprocess

    print(
        "width  client            wall / ideal   x aiohttp   CPU ms a call   x aiohttp   x litellm   peak in flight   connections"
    )
    for width in args.widths:
        calls = width * args.waves
        ideal = calls * args.latency_ms / 1000 / width
        cpu: dict[str, float] = {}
        walls: dict[str, float] = {}
        sent: dict[str, set[str]] = {}
        for client in args.clients:
            with tempfile.TemporaryDirectory() as folder:
                log = Path(folder, "log.jsonl")
                with serving_in_subprocess("--latency-ms", str(args.latency_ms), "--log", str(log)) as url:
                    command = [sys.executable, __file__, "--child", client, url, str(calls), str(width)]
                    done = subprocess.run(command, capture_output=True, text=True, check=False)
                if done.returncode:
                    sys.exit(done.stdout + done.stderr)
                wall, used = json.loads(done.stdout.strip().splitlines()[-1])
                seen = read_log(log)
            cpu[client], walls[client], sent[client] = used / calls * 1000, wall, {line["body"] for line in seen}
            if sent.get("aiohttp", sent[client]) != sent[client] and client == "ragpipe-direct":
                sys.exit("aiohttp and the direct client did not send the same bytes")
            slower = f"{wall / walls['aiohttp']:9.3f}" if "aiohttp" in walls else "        -"
            ratios = [f"{cpu[client] / cpu[base]:9.2f}" if base in cpu else "        -" for base in ("aiohttp", "litellm")]
            peak, sockets = max(line["in_flight"] for line in seen), len({line["peer"] for line in seen})
            print(
                f"{width:>5}  {client:<16}  {wall / ideal:12.3f}   {slower}   {cpu[client]:13.3f}   {ratios[0]}   {ratios[1]}   {peak:>14}   {sockets:>11}",
                flush=True,
            )


if __name__ == "__main__":
    main()

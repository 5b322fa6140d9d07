"""`python -m ragpipe.example_rag`: the example RAG over HTTP, and the manifest of its index."""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from aiohttp import web

from ragpipe.core.errors import RagpipeError
from ragpipe.example_rag.planted_faults import FAULTS
from ragpipe.example_rag.rag_server import RagServer
from ragpipe.example_rag.system import HANDBOOK, ExampleRag

PORT = 8123


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until SIGINT or SIGTERM; with `--manifest` and without `--port`, write the file and end. Returns the exit code."""
    options = _parser().parse_args(arguments)
    try:
        rag = ExampleRag(options.docs, options.fault)
    except RagpipeError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    if options.manifest is not None:
        try:
            written = write_index_manifest(rag, options.manifest)
        except OSError as error:
            print(f"the manifest cannot be written to {options.manifest}: {error}", file=sys.stderr)
            return 6
        print(f"{options.manifest}: {written:,} rows")
        if options.port is None:
            return 0
    server = RagServer(rag, options.latency_ms, options.fail_rate)
    port = PORT if options.port is None else options.port
    try:
        return asyncio.run(_serve(server, options.host, port))
    except OSError as error:
        print(f"no server on {options.host}:{port}: {error.strerror or error}; choose another --port", file=sys.stderr)
        return 6


def write_index_manifest(rag: ExampleRag, path: Path) -> int:
    """Write the manifest of the index as JSON Lines, over a file of that name. Returns the number of rows."""
    rows = [json.dumps(row, ensure_ascii=False) for row in rag.index_rows()]
    path.write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")
    return len(rows)


async def _serve(server: RagServer, host: str, port: int) -> int:
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        with suppress(NotImplementedError):  # Windows
            asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    runner = web.AppRunner(server.application(), access_log=None, shutdown_timeout=2)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
        bound = runner.addresses[0][1]
        chunks, faults = len(server.rag.index.chunks), ", ".join(sorted(server.rag.faults)) or "none"
        print(f"example RAG {server.rag.version} on http://{host}:{bound}: {chunks} chunks; faults: {faults}")
        print("evaluate it in another terminal, and end it with Ctrl-C:")
        url = "" if bound == PORT else f" system.url=http://{host}:{bound}/ask"
        print(f"  python -m ragpipe +experiment=example_rag system=example_http{url}", flush=True)
        await stopped.wait()
    finally:
        await runner.cleanup()
    print(f"{server.asked:,} requests, {server.failed:,} of them failed on purpose")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m ragpipe.example_rag",
        description="A small RAG system over HTTP, to try an evaluation on.",
        epilog="faults: " + "; ".join(f"{name}: {effect}" for name, effect in FAULTS.items()),
    )
    parser.add_argument("--port", type=int, help=f"port (default {PORT}; 0: any free one)")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: this machine only)")
    parser.add_argument(
        "--docs", type=Path, default=HANDBOOK, help="a folder of Markdown (default: the shipped handbook)"
    )
    parser.add_argument("--fault", nargs="+", action="extend", default=[], metavar="NAME", help="switch faults on")
    parser.add_argument(
        "--manifest", type=Path, metavar="FILE", help="write the index manifest; without --port, only that"
    )
    parser.add_argument("--latency-ms", type=float, default=0.0, help="milliseconds before every answer")
    parser.add_argument("--fail-rate", type=_share, default=0.0, help="share of requests answered by 503, 0 to 1")
    return parser


def _share(text: str) -> float:
    value = float(text)
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError("expected a number from 0 to 1")
    return value


if __name__ == "__main__":
    sys.exit(main())

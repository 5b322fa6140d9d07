"""`python -m ragpipe.example_rag`: the example RAG over HTTP, and the manifest of its index.

    POST /ask  {"question": "...", "folder_mode": "off"}
    GET  /ask?question=...&folder_mode=off

Both answer with the JSON object of `ExampleRag.answer`; a wrong request gets 400 and the reason.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from aiohttp import web

from ragpipe.core.errors import RagpipeError
from ragpipe.example_rag.system import FAULTS, HANDBOOK, ExampleRag

PORT = 8123


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until SIGINT or SIGTERM; with `--manifest` and without `--port`, write the file and end. Returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m ragpipe.example_rag",
        description="A small RAG system over HTTP, to try an evaluation on.",
        epilog="faults: " + "; ".join(f"{name}: {effect}" for name, effect in FAULTS.items()),
    )
    parser.add_argument("--port", type=int, help=f"port of this machine (default {PORT}; 0: any free one)")
    parser.add_argument("--docs", type=Path, default=HANDBOOK, help="a folder of Markdown (default: the handbook)")
    parser.add_argument("--fault", nargs="+", action="extend", default=[], metavar="NAME", help="switch faults on")
    parser.add_argument("--manifest", type=Path, metavar="FILE", help="write the index manifest; without --port, only that")
    options = parser.parse_args(arguments)
    try:
        rag = ExampleRag(options.docs, options.fault)
        if options.manifest is not None:
            rows = [json.dumps(row, ensure_ascii=False) for row in rag.index_rows()]
            options.manifest.write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")
            print(f"{options.manifest}: {len(rows):,} rows")
        if options.manifest is None or options.port is not None:
            web.run_app(
                application(rag), host="127.0.0.1", port=PORT if options.port is None else options.port, access_log=None
            )
    except RagpipeError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    except OSError as error:
        print(f"the example RAG cannot go on: {error}", file=sys.stderr)
        return 6
    return 0


def application(rag: ExampleRag) -> web.Application:
    """The server, for aiohttp."""

    async def ask(request: web.Request) -> web.Response:
        try:
            fields = dict(request.query) if request.method == "GET" else json.loads(await request.text())
            if not isinstance(fields, dict) or not isinstance(fields.get("question"), str):
                raise ValueError('no question; expected {"question": "a text"}')
            return web.json_response(rag.answer(fields["question"], fields.get("folder_mode") or "off"))
        except ValueError as error:
            return web.json_response({"error": {"message": str(error)}}, status=400)

    served = web.Application()
    served.add_routes([web.get("/ask", ask), web.post("/ask", ask)])
    return served


if __name__ == "__main__":
    sys.exit(main())

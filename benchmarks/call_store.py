"""A call store in PostgreSQL beside one in SQLite: bytes per call, and operations per second by the clock and by the CPU of the client.

    python benchmarks/call_store.py [--url postgresql://...] [--calls 20000] [--groups 64 512] [--pairs 3]

Without a URL it starts a server of its own (initdb and postgres must be installed). Calls are claimed and stored in groups, then looked
up; runs of the two stores alternate, so the speed of the machine drops out of the ratios. Replies have 150 characters.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
import uuid
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import psycopg

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from ragpipe.core.call import Call, Payment  # noqa: E402
from ragpipe.core.digest import sha256  # noqa: E402
from ragpipe.store.call_database import StorePlace, call_database, store_place_of  # noqa: E402
from ragpipe.store.call_rows import packed  # noqa: E402
from ragpipe.store.ledger import Lookup, OpenTable, ledger_payment  # noqa: E402
from tests.extras.postgres.postgres_server import postgres_server  # noqa: E402

TIME = "2026-11-22T08:00:00.000+00:00"
JUDGE = {f"judge.{n}": sha256(n) for n in range(8)}


def calls(count: int) -> list[Call]:
    made = []
    for number in range(count):
        parts = {**JUDGE, "messages": sha256(f"m{number}"), "schema": sha256(f"s{number % 3}"), "iteration": sha256(1)}
        asked = sha256({name: parts[name] for name in ("messages", "schema")})
        made.append(Call(
            sha256(parts), asked, "openai/m-2026-01-01", "ok", text=f'{{"verdict": "yes", "n": {number}}}'.ljust(150, "x"),
            model="m-2026-01-01", fingerprint="fp_1", finish_reason="stop", tokens_in=900 + number % 500, tokens_out=60, tokens_cached=0,
            tokens_reasoning=0, paid_usd=0.000171, latency_ms=812.125 + number % 97, answers=1, output_mode="json_schema",
            sent={"temperature": 0.0}, wire_hash=sha256(f"w{number}"), fields=parts, run_id="0123456789ab", created_at=TIME,
        ))  # fmt: skip
    return made


def fill(table: OpenTable, some: list[Call], group: int) -> tuple[dict[str, float], dict[str, float]]:
    """Operations per second of the clock, and per second of this process' CPU."""
    rates: dict[str, float] = {}
    cpu: dict[str, float] = {}

    def timed(name: str, work: object) -> None:
        start, used = time.perf_counter(), time.process_time()
        for first in range(0, len(some), group):
            work(some[first : first + group])  # type: ignore[operator]
        rates[name] = len(some) / (time.perf_counter() - start)
        cpu[name] = len(some) / (time.process_time() - used)

    paid = Payment("openai/m-2026-01-01", TIME, 900, 60, 0, 0, 0, 0.000171)
    timed("claim", lambda block: table.find_or_claim([Lookup(call.key) for call in block]))
    timed(
        "put",
        lambda block: table.write(
            [packed(call, "") for call in block], [], [ledger_payment(c.key, c.run_id, 1, paid) for c in block]
        ),
    )
    timed("find", lambda block: table.find([Lookup(call.key) for call in block]))
    return rates, cpu


def measured(place: StorePlace, some: list[Call], group: int) -> tuple[dict[str, float], dict[str, float], float]:
    """Rates, and the bytes per call."""
    database = call_database(place)
    table = database.open_table("0123456789ab")
    try:
        rates, cpu = fill(table, some, group)
        table.sync()
    finally:
        table.close()
    if not isinstance(place, Path):
        with psycopg.connect(place.url, autocommit=True) as connection:  # its room is used again, by the claims to come
            connection.execute(f"TRUNCATE {place.schema}.claims".encode())
    with database.reading() as db:
        return rates, cpu, database.size(db) / len(some)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", help="a database in which schemas may be made; they are left there")
    parser.add_argument("--calls", type=int, default=20_000)
    parser.add_argument("--groups", type=int, nargs="+", default=[64, 512])
    parser.add_argument("--pairs", type=int, default=3)
    options = parser.parse_args()
    some = calls(options.calls)
    with ExitStack() as stack:
        url = options.url or stack.enter_context(postgres_server(settings=())).url
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        for group in options.groups:
            ratios: dict[str, list[float]] = {}
            for pair in range(options.pairs):
                mark = uuid.uuid4().hex[:12]
                places = folder / mark / "calls.sqlite", replace(store_place_of(url, None, ""), schema=f"b{mark}")  # type: ignore[type-var]
                sqlite, postgres = (measured(place, some, group) for place in places)
                for name in sqlite[0]:
                    ratios.setdefault(name, []).append(postgres[0][name] / sqlite[0][name])
                    if pair == options.pairs - 1:
                        print(
                            f"groups of {group}, {name}: SQLite {sqlite[0][name]:,.0f}/s (CPU {sqlite[1][name]:,.0f}/s), "
                            f"PostgreSQL {postgres[0][name]:,.0f}/s (CPU of the client {postgres[1][name]:,.0f}/s), "
                            f"ratio {statistics.median(ratios[name]):.2f}"
                        )
            print(f"groups of {group}: {sqlite[2]:,.0f} and {postgres[2]:,.0f} bytes per call with its payment and all indexes")


if __name__ == "__main__":
    main()

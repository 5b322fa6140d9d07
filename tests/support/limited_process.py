"""One of several processes that ask one server under shared limits: the real transport over the real rows, without a run around it.

    python -m tests.support.limited_process FOLDER URL '{"seconds": 10, "width": 4, "judge": {"rpm": 300}, "budget": {"calls": 50}}'

It asks a question after the other, `width` at a time, for so many seconds from its first answer (or until nothing more may be asked), and prints what
became of them: by status, or by the name of the error.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

from ragpipe.core.errors import Incomplete, ProviderUnusable
from ragpipe.judging.budget_settings import BudgetSettings
from ragpipe.judging.limits.shared_budget import SharedBudget
from ragpipe.judging.limits.shared_limits import SharedUse, open_limits
from ragpipe.judging.transports.live_transport import LiveTransport
from ragpipe.judging.transports.provider_state import ProviderRegistry
from ragpipe.schema.amount import Amount
from tests.support.asking import question, settings


async def work(transport: LiveTransport, options: dict[str, Any]) -> Counter[str]:
    counts: Counter[str] = Counter()
    ends = time.monotonic() + options["seconds"]

    async def ask(number: int) -> None:
        count = 0
        while time.monotonic() < ends and not counts.keys() & {"Incomplete", "budget", "ProviderUnusable"}:
            count += 1
            asked = question(f"{os.getpid()} {number} {count}")
            try:
                async with transport.slot():
                    call = await transport.ask(asked, lambda _: None)
                counts[call.status] += 1
            except (Incomplete, ProviderUnusable) as error:
                counts[type(error).__name__] += 1
            await asyncio.sleep(options.get("idle_s", 0))

    await asyncio.gather(*map(ask, range(options["width"])))
    await transport.close()
    return counts


def main() -> None:
    folder, url, options = Path(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3])
    judge = settings(url, **options["judge"])
    with open_limits(folder / "calls.sqlite", print) as limits, closing(limits.account("run")) as account:
        budget = None
        if "budget" in options:
            budget = SharedBudget(BudgetSettings(**options["budget"]), "judge", account, Amount())
        transport = LiveTransport(judge, run_id="run", tell=print, budget=budget, shared=SharedUse(limits, account))
        transport.share_provider_state(ProviderRegistry("start"))
        print(json.dumps(asyncio.run(work(transport, options))))


if __name__ == "__main__":
    main()

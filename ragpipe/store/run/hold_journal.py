"""The journal of a budget: what is held for requests under way, written down before they are sent.

The ledger of payments has the requests that were answered. A request that was under way when its process was killed is in no
ledger, and may have been billed all the same. So each hold is a line here before its request leaves, and a second line says
what became of it. A hold without a second line counts as spent. A request of a batch goes on without its process: its hold has a name,
and stays open for the start that collects it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ragpipe.core.errors import DataError, Problem
from ragpipe.schema.usage import Amount
from ragpipe.store.files.atomic import atomic_write, json_bytes
from ragpipe.store.run.journal import HEADER, Journal, read_entries

_FORM = {"event": str, "hold": int, "name": str, "usd": float, "tokens": int, "calls": int}


class HoldJournal:
    """The holds of one account, over all starts. One process writes at a time: the lock of the run's folder ensures it.

    `carried` is what all earlier starts have spent, `assumed` the part of it that no answer confirms: holds of requests that
    timed out, broke off, or were under way when their process was killed. A line is in the operating system's hands before
    its request is sent: a killed process loses none, a power cut the last second. `named` are the open holds that have a name, each with
    its number; they are part of `carried` and of `assumed`.
    """

    def __init__(self, journal: Journal, carried: Amount, assumed: Amount, named: Mapping[str, tuple[int, Amount]]):
        self._journal = journal
        self.carried, self.assumed, self.named = carried, assumed, named
        self._last = len(named)

    @classmethod
    def open(cls, path: Path, ledger: Amount, *, spent_before: Amount | None = None) -> HoldJournal:
        """Open or begin the journal of an account; `ledger` is what the ledger of payments says that it has spent. With a new
        journal `spent_before` is what counts of it; None: all.

        A start without a budget leaves no holds but payments: whatever the ledger gained beyond the holds of the last start
        is counted too. Raises DataError for a damaged journal, OutputError.
        """
        carried, assumed, open_holds = _summed(path, ledger, ledger if spent_before is None else spent_before)
        named = {name: (number, open_holds[name]) for number, name in enumerate(open_holds, 1)}
        lines = [_line("ledger", 0, ledger), _line("spent", 0, carried), _line("assumed", 0, assumed)]
        lines += [_line("hold", number, amount, name) for name, (number, amount) in named.items()]
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(path, HEADER + b"".join(json_bytes(line) + b"\n" for line in lines))
        left = sum(open_holds.values(), Amount())
        return cls(Journal.open(path, keep=lambda _: False), carried + left, assumed + left, named)

    def hold(self, amount: Amount, name: str = "") -> int:
        """Write down what a request may cost, before it is sent. Returns the number of the hold. Raises OutputError."""
        self._last += 1
        self._journal.append(_line("hold", self._last, amount, name))
        return self._last

    def settle(self, number: int, cost: Amount) -> None:
        """Write down what the request has cost; nothing where the provider refused it. Raises OutputError."""
        self._journal.append(_line("cost", number, cost))

    def close(self) -> None:
        """Close the file. Raises OutputError."""
        self._journal.close()


def _line(event: str, number: int, amount: Amount, name: str = "") -> dict[str, Any]:
    return {"event": event, "hold": number, "name": name, **amount.as_json()}


def _summed(path: Path, ledger: Amount, spent_before: Amount) -> tuple[Amount, Amount, dict[str, Amount]]:
    """What all earlier starts have spent, and the part of it that no answer confirms, both without the open holds that have a name;
    and these by name."""
    totals = {"ledger": Amount(), "spent": Amount(), "assumed": Amount()}
    is_new, held, answered = True, dict[int, tuple[str, Amount]](), Amount()
    for entry in read_entries(path, form=_FORM):
        event, number, amount = entry["event"], entry["hold"], Amount.from_json(entry)
        if event in totals:
            is_new, totals[event] = False, amount
        elif event == "hold":
            held[number] = entry["name"], amount
        elif event == "cost" and number in held:
            del held[number]
            answered += amount
        else:
            found = f"{event!r} of hold {number}"
            problem = Problem(str(path), "event", found, "hold, or the cost of a hold above it", "remove the line")
            raise DataError(f"the journal {path} cannot be continued", [problem])
    if is_new:
        return spent_before, Amount(), {}
    left, named = Amount(), dict[str, Amount]()
    for name, amount in held.values():
        if name:
            named[name] = named.get(name, Amount()) + amount
        else:
            left += amount
    gained = (ledger - totals["ledger"]).at_least(Amount())
    return totals["spent"] + left + answered.at_least(gained), totals["assumed"] + left, named

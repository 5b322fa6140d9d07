"""What must be true of a run folder whatever happened to the run, and a run inside this process to provoke it."""

import contextlib
import io
import json
import math
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import pyarrow.parquet as pq

from ragpipe.cli.command_line import main
from ragpipe.testing.openai_faults import ServerFault
from ragpipe.testing.openai_server import OpenAIServer
from tests.support.harness import arguments, run_folder, write_cases
from tests.support.waiting import wait_until

ZEBRA = "zebra"  # marks the cases that a fault is meant for: it stands in every question about them


@dataclass
class Ran:
    """One start: exit code, everything it printed, and the requests that it caused."""

    code: int
    text: str
    requests: list[dict[str, Any]]
    folder: Path

    @property
    def bodies(self) -> Counter[str]:
        return Counter(r["body"] for r in self.requests if "body" in r)

    def rows(self, table: str = "scores") -> list[dict[str, Any]]:
        return pq.read_table(self.folder / "iteration-1" / f"{table}.parquet").to_pylist()

    def json(self, name: str) -> dict[str, Any]:
        return strict(self.folder / name)

    @property
    def state(self) -> str:
        return self.json("manifest.json")["iterations"]["1"]

    @property
    def coverage(self) -> dict[str, float]:
        scores = self.json("iteration-1/metrics.json")["overall"]["scores"]
        return {name: score["coverage"] for name, score in scores.items() if "coverage" in score}


@dataclass
class Bench:
    """A server in this process, a data file, and starts of ragpipe through the command line's own door."""

    folder: Path
    server: OpenAIServer
    cases: int = 12
    zebras: tuple[int, ...] = ()
    options: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.data = write_cases(self.folder / "cases.jsonl", self.cases)
        lines = self.data.read_text(encoding="utf-8").split("\n")
        for place in self.zebras:
            record = json.loads(lines[place])
            record["question"] += f" ({ZEBRA})"
            record["answer"] = record["answer"].replace(". It", f" of a {ZEBRA}. It also speaks of a {ZEBRA}, and it")
            lines[place] = json.dumps(record)
        self.data.write_text("\n".join(lines), encoding="utf-8")

    def fault(self, *faults: str) -> None:
        self.server.faults = [ServerFault.read(text) for text in faults]

    def args(self, *extra: str, metrics: str = "faithfulness", concurrency: int = 8) -> list[str]:
        words = [*self.options, *extra]
        return arguments(self.data, self.folder / "out", self.server.url, *words, metrics=metrics, concurrency=concurrency)

    def run(self, *extra: str, metrics: str = "faithfulness", concurrency: int = 8) -> Ran:
        before = len(self.server.log)
        shown = io.StringIO()
        with contextlib.redirect_stdout(shown), contextlib.redirect_stderr(shown):
            code = main(self.args(*extra, metrics=metrics, concurrency=concurrency))
        return self.ran(code, shown.getvalue(), before)

    def meanwhile(self, requests: int, act: Callable[[], object], concurrency: int = 8) -> Ran:
        """A start in this process, during which `act` is called once it has asked so much."""

        def wait() -> None:
            while self.server.arrivals < requests:
                time.sleep(0.005)
            act()

        thread = threading.Thread(target=wait)
        thread.start()
        ran = self.run(concurrency=concurrency)
        thread.join()
        return ran

    def ran(self, code: int, text: str, before: int = 0) -> Ran:
        """How a start ended, in this process or another; `before` = requests before it."""
        assert "Traceback" not in text, text
        check_folder(self.folder)
        return Ran(code, text, self.server.log[before:], run_folder(self.folder / "out"))

    def until(self, requests: int, process: subprocess.Popen[str]) -> None:
        wait_until(lambda: self.server.arrivals >= requests, process)


def check_folder(folder: Path) -> None:
    """No value beside a status that is not ok, no number that is none, no file half-written, whatever happened."""
    for path in folder.rglob("*"):
        if path.is_symlink() or not path.is_file():
            continue
        if path.suffix == ".json":
            strict(path)
        elif path.name == "journal.jsonl":
            for line in path.read_bytes().split(b"\n")[:-1]:
                _strict(line)
        elif path.suffix == ".parquet":
            rows = pq.read_table(path).to_pylist()
            if path.name == "scores.parquet":
                check_scores(rows)
            if path.name == "records.parquet":
                _check_finite(rows, str(path))


def check_scores(rows: list[dict[str, Any]]) -> None:
    for row in rows:
        assert row["status"] in ("ok", "skipped", "error"), row
        if row["status"] == "ok":
            assert row["value"] is not None, row
            assert math.isfinite(row["value"]), row
        else:
            assert row["value"] is None, row
            assert row["reason"], row
        if row["details"]:
            _strict(row["details"])


def strict(path: Path) -> Any:
    return _strict(path.read_bytes())


def _strict(text: str | bytes) -> Any:
    return json.loads(text, parse_constant=_no_constant)


def _no_constant(name: str) -> NoReturn:
    raise AssertionError(f"{name} in a JSON file")


def _check_finite(value: Any, where: str) -> None:
    if isinstance(value, float):
        assert math.isfinite(value), where
    elif isinstance(value, dict):
        for item in value.values():
            _check_finite(item, where)
    elif isinstance(value, list):
        for item in value:
            _check_finite(item, where)


def places_of(folder: Path, text: str) -> list[str]:
    """Every file below a folder that holds the text, in its bytes or its name, in whichever encoding ragpipe writes."""
    found = []
    for path in folder.rglob("*"):
        if text in str(path.relative_to(folder)):
            found.append(f"name {path}")
        if path.is_symlink() and text in str(path.readlink()):
            found.append(f"link {path}")
        if path.is_file() and not path.is_symlink():
            if text.encode() in path.read_bytes():
                found.append(str(path))
            elif path.suffix == ".parquet" and text in json.dumps(pq.read_table(path).to_pylist(), ensure_ascii=False, default=str):
                found.append(f"column of {path}")  # compressed, so not in its bytes
    return found

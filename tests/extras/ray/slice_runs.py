"""Runs whose cases are measured elsewhere: a metric that says where, the command, and what its processes do."""

import json
import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from tests.support.harness import ROOT

PLUGIN = '''
import os, sys, time
from ragpipe import Computed, Score

class Slow(Computed):
    """Takes its time, says who measures, and prints where a worker's answers must not be mixed with it."""

    def compute(self, cases):
        for case in cases:
            time.sleep(float(os.environ.get("SLOW_S", "0.002")))
            print("measured", case.sample.id)
            with open(os.environ["MEASURED"], "a") as file:
                file.write(f"{os.getpid()} {case.sample.id}\\n")
            if case.sample.id == os.environ.get("FATAL"):
                os.kill(os.getpid(), 9)
            if case.sample.id == os.environ.get("FATAL_ONCE"):
                mark = os.environ["MEASURED"] + ".once"
                if not os.path.exists(mark):
                    open(mark, "w").close()
                    os.kill(os.getpid(), 9)
        return [Score(len(case.answer or "") % 2) for case in cases]
'''
CASES = 60
WORDS = [
    "dataset=jsonl", "dataset.path=cases.jsonl", "metrics=[faithfulness,groundedness]", "plugins=[slow_plugin]",
    "+metrics.slow.class=slow_plugin.Slow", "name=workers", "report.formats=[]",
]  # fmt: skip


def write_place(folder, cases=CASES):
    """A folder with cases and the plugin, to run in."""
    (folder / "slow_plugin.py").write_text(PLUGIN)
    with open(folder / "cases.jsonl", "w") as file:
        for i in range(cases):
            texts = [f"The harbour of town {i} was built in {1800 + i}.", f"Its lighthouse is {20 + i} metres high."]
            answer = f"The harbour was built in {1800 + i}. " + ("It has no lighthouse at all. " if i % 3 else "")
            record = {"id": f"q{i}", "question": f"When was harbour {i} built?", "answer": answer, "contexts": texts}
            file.write(json.dumps(record) + "\n")
    return folder


def start(place, *words, **environment):
    """A run in a process and a session of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "ragpipe", *WORDS, *words], cwd=place, text=True, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "MEASURED": str(place / "measured"), **environment},
    )  # fmt: skip


def ended(place, *words, code=0, **environment):
    process = start(place, *words, **environment)
    out, _ = process.communicate(timeout=120)
    assert process.returncode == code, out
    return out


def seals(place, output_dir):
    """The seals of all tables of the run, by their names."""
    files = json.loads((place / output_dir / "workers" / "latest" / "seal.json").read_text())["files"]
    return {name: digest for name, digest in files.items() if name.endswith(".parquet")}


def bytes_of(place, output_dir):
    iteration = place / output_dir / "workers" / "latest" / "iteration-1"
    names = ("scores.parquet", "judge_inputs.parquet", "records.parquet", "metrics.json")
    return {name: (iteration / name).read_bytes() for name in names}


def workers_of(place, driver):
    """The processes that have measured here, without the driver, and that still live."""
    path = place / "measured"
    named = {int(line.split()[0]) for line in path.read_text().splitlines()} if path.exists() else set()
    return [pid for pid in named - {driver} if lives(pid)]


def lives(pid):
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    return False


def until(condition, seconds=30):
    end = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < end, f"not within {seconds} s"
        time.sleep(0.02)
    return value

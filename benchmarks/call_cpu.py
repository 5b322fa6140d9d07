"""CPU seconds per judged call of a whole run, against another checkout: what a change of the judge layer costs.

    git worktree add ../before COMMIT
    python benchmarks/call_cpu.py ../before

The local server runs in a process of its own and is not counted. Runs of both checkouts alternate; ratios are of pairs, so the speed of the
machine drops out. On Linux with `taskset` each side has a core of its own. Modules are compiled by a first run that is not counted, as
on any machine after the first day.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.support.harness import arguments, write_cases  # noqa: E402

CASES = 400
FEATURES = {
    "default": [],
    "budget": ["judge.budget.tokens=100000000"],
    "tpm": ["judge.tpm=1000000000"],
    "rpm": ["judge.rpm=10000000"],
}


def _on_core(core: int) -> list[str]:
    return ["taskset", "-c", str(core)] if shutil.which("taskset") and (os.cpu_count() or 1) > 1 else []


def _children_cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def milliseconds_per_call(checkout: Path, work: Path, words: list[str]) -> float:
    """CPU of one run of a checkout, start and end included, per judged call."""
    command = [*_on_core(1), sys.executable, "-m", "ragpipe.testing.local_server", "--port", "0"]
    server = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert server.stdout
    url = next(word for word in server.stdout.readline().split() if word.startswith("http"))
    out = work / "out"
    run = [*_on_core(0), sys.executable, "-m", "ragpipe", *arguments(work / "cases.jsonl", out, url, *words, concurrency=16)]
    environment = {**os.environ, "PYTHONPATH": str(checkout), "RAGPIPE_TEST_KEY": "sk-none"}
    environment["PYTHONPYCACHEPREFIX"] = str(work / "pycache")
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    before = _children_cpu()
    subprocess.run([*run, "report.formats=[]"], cwd=work, env=environment, capture_output=True, check=True)
    used = _children_cpu() - before
    server.kill()
    server.wait()
    costs = json.loads(next(out.glob("torture/*/iteration-1/cost.json")).read_text())
    shutil.rmtree(out)
    return 1000 * used / float(costs["used"]["calls"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("base", type=Path, help="the other checkout")
    parser.add_argument("--pairs", type=int, default=7)
    options = parser.parse_args()
    ratios: dict[str, list[float]] = {name: [] for name in FEATURES}
    exhaustive = "metrics.chunk_faithfulness.exhaustive=true"
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        write_cases(work / "cases.jsonl", CASES)
        for checkout in (ROOT, options.base.resolve()):
            milliseconds_per_call(checkout, work, [exhaustive])
        for pair in range(options.pairs):
            base = milliseconds_per_call(options.base.resolve(), work, [exhaustive])
            for name, words in FEATURES.items():
                ratios[name].append(milliseconds_per_call(ROOT, work, [exhaustive, *words]) / base)
            print(
                f"pair {pair + 1}: base {base:.2f} ms, " + ", ".join(f"{n} {r[-1]:.3f}" for n, r in ratios.items()), flush=True
            )
    for name, of_pairs in ratios.items():
        print(f"{name}: {statistics.median(of_pairs):.3f} times the base [{min(of_pairs):.3f}, {max(of_pairs):.3f}]")


if __name__ == "__main__":
    main()

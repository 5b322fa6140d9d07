"""What it takes to start a command, beside an interpreter that only imports hydra, pydantic and pyarrow; and ragpipe's own modules.

    python benchmarks/startup.py [--rounds 5] [--small]

CPU seconds (user and system), the least of all rounds, in pairs with the baseline: other work on the machine only adds to it. The
first call: from the start of the process to the arrival of its first request at a local server.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from measured import IMPORTS, judge_words, measure, say, write_judged_cases

from ragpipe.testing.openai_server import read_log, serving_in_subprocess

RUN = "run=outputs/quickstart_llm/latest"
EXPERIMENT = "+experiment=quickstart_llm"
COMMANDS = {
    "second start of a finished run": ([EXPERIMENT], 2.0),
    "task=explain": (["task=explain", RUN, "case=dao-04", "metric=faithfulness"], 2.0),
    "task=runs": (["task=runs"], 2.0),
    "task=plan": (["task=plan", EXPERIMENT], 2.0),
}
"""Words of each command, and its goal as a multiple of the imports."""
MODULES = "import runpy, sys, atexit; atexit.register(lambda: print(sum(n.split('.')[0] == 'ragpipe' for n in sys.modules)));"


def first_call(folder: Path, log: Path, url: str) -> float:
    """Seconds until the first request arrives."""
    began = time.time()
    words = ["-m", "ragpipe", "dataset=jsonl", "dataset.path=cases.jsonl", "metrics=[groundedness]", *judge_words(url, 16)]
    measure([*words, f"output_dir={began}"], folder)
    return min(line["arrived"] for line in read_log(log) if line["arrived"] >= began) - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--small", action="store_true", help="the smallest size: does it work?")
    args = parser.parse_args()
    rounds = 1 if args.small else args.rounds
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_judged_cases(folder / "cases.jsonl", 20)
        measure(["-m", "ragpipe", EXPERIMENT], folder)
        say("--help", min(measure(["-m", "ragpipe", "--help"], folder).cpu for _ in range(rounds)), "s CPU", 0.1)
        for what, (words, goal) in COMMANDS.items():
            pairs = [(measure(["-m", "ragpipe", *words], folder), measure(IMPORTS, folder)) for _ in range(rounds)]
            cpu, base = (min(one.cpu for one in column) for column in zip(*pairs, strict=True))
            say(what, cpu / base, f"x imports ({base:.2f} s)", goal)
        code = f"{MODULES} sys.argv[1:] = ['{EXPERIMENT}']; runpy.run_module('ragpipe', run_name='__main__')"
        say("own modules of a second start", float(measure(["-c", code], folder).output.split()[-1]), "modules", 200)
        log = folder / "log.jsonl"
        with serving_in_subprocess("--log", str(log)) as url:
            call = min(first_call(folder, log, url) for _ in range(rounds))
        base = min(measure(IMPORTS, folder).wall for _ in range(rounds))
        say("first call of a judge at the server", call / base, "x imports, by the clock", 2.5)


if __name__ == "__main__":
    main()

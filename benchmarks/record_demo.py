"""Record the judgements of `+experiment=quickstart_llm` anew: a live run against an endpoint, then the file that is shipped.

    python benchmarks/record_demo.py run --api-base http://127.0.0.1:8000/v1 [--without faithfulness ...] [--to outputs/recording]
    python benchmarks/record_demo.py write [--to outputs/recording]

`run` asks everything at once, so that a slow reader sees it in no order; stopped and started again, it asks nothing twice. With
`--without` the named metrics are left for a later `run`. `write` takes the replies of the complete run and writes
ragpipe/data/demo/judge_replies.jsonl: the same replies give the same bytes. The day of the recording is that of the model's name in
conf/judge/recorded.yaml: change it first, with the note beside it.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

import pyarrow.parquet as pq

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import ragpipe  # noqa: E402
from ragpipe.core.resources import data_path  # noqa: E402
from ragpipe.store.recorded_replies import write_recorded_file  # noqa: E402

REPLIES = data_path("package:demo/judge_replies.jsonl")
NAME = "recording"
CONCURRENCY = 600
TIMEOUT_S = 9000


def record(api_base: str, without: list[str], to: Path) -> None:
    """Ask the endpoint what it was not asked before, and print the results."""
    ragpipe.run(
        [
            "+experiment=quickstart_llm",
            "store.recorded=null",
            "transport=live",
            "judge.client=direct",
            f"judge.api_base={api_base}",
            "judge.output_mode=json_schema",
            f"judge.concurrency={CONCURRENCY}",
            f"judge.timeout_s={TIMEOUT_S}",
            f"judge.outage_s={TIMEOUT_S}",
            f"output_dir={to}",
            f"name={'_without_'.join([NAME, *without])}",
            *(f"~metrics.{metric}" for metric in without),
        ]
    )


def write(to: Path) -> None:
    """Write the replies of the complete run, and print how many there are and how many bytes they take."""
    folder = ragpipe.load(to / NAME / "latest").path / "iteration-1"
    rows = pq.read_table(folder / "judge_inputs.parquet").to_pylist()
    day = re.search(r"\d{4}-\d\d-\d\d", rows[0]["judge"])
    if day is None:
        raise SystemExit(f"the judge {rows[0]['judge']} names no day")
    count = write_recorded_file(REPLIES, rows, recorded=day[0])
    size = REPLIES.stat().st_size
    print(f"{REPLIES}: {count} replies, {size:,} bytes, {size / count:.0f} per reply")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=("run", "write"))
    parser.add_argument("--api-base", help="base URL of the OpenAI-compatible endpoint")
    parser.add_argument("--without", nargs="*", default=[], help="metrics that are recorded later")
    parser.add_argument("--to", type=Path, default=Path("outputs/recording"), help="the folder of the runs")
    options = parser.parse_args()
    if options.action == "write":
        write(options.to)
    elif options.api_base is None:
        parser.error("run needs --api-base")
    else:
        record(options.api_base, options.without, options.to)


if __name__ == "__main__":
    main()

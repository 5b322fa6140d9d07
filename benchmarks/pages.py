"""What the pages of a run cost: their making, their size, and how long a browser needs to open, search, filter, sort and open a case.

    python benchmarks/pages.py [--cases 101 2000 20000] [--rounds 2] [--pages report scores compare] [--large]

Grows a run of the demonstration set to so many cases with texts of their own (`--large` adds 200,000), writes `report.html` of it and the
`compare.html` of two of its methods, and opens them in the Chromium of the machine by Playwright (the extra `dev-browser`). `scores` is
report.html of a run of all metrics that need neither a model nor a setting: of many scores. Making is in CPU
seconds and in MB of the process at its peak, over what it has before; what the browser does in wall seconds inside the page, each
the least of all rounds, up to the next frame; places in pixels of a window of 1440 x 900 or 390 x 844. In brackets
stands the ratio to the size before.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from measured import ROOT
from measured import say as say_goal

import ragpipe
from ragpipe.comparison.comparison import compare_sides, comparison_document
from ragpipe.comparison.settings import CompareSettings
from ragpipe.report.compare_page import compare_page
from ragpipe.report.page_file import write_page
from ragpipe.report.settings import ReportSettings
from ragpipe.runs.write_reports import write_report_files
from ragpipe.store.run_folder import RunFolder
from tests.support.compared_runs import side_of
from tests.support.playwright_pages import chromium, open_page

CASES = {"report": 101, "scores": 101, "compare": 40}
"""Cases of the demonstration set on each page: all of its methods, and the questions that `baseline` and `rerank` share."""
FILTERS = {"report": ("#verdict", "miss"), "scores": ("#verdict", "miss"), "compare": ("#flip", "to_failed")}
SORTED = {"report": ("#sort", "data"), "scores": ("#sort", "data"), "compare": ("#sort", "rise")}
BUDGETS = {
    "ready": 1.5,
    "first search": 0.1,
    "next search": 0.1,
    "filter": 0.2,
    "sort": 0.2,
    "open a case": 0.15,
    "elements": 3000,
    "methods end": 900,
    "chart ends": 1400,
}
"""Of 20,000 cases and fewer: seconds until the list stands there, of a search, a filter, an order and an opened case; elements with a case open; where
the first chart ends on a screen and on a phone."""
NEEDS = {"bert_score", "semantic_similarity", "recorded"}
"""Metrics that need a model or a setting."""
QUICKSTART_MB = 2.0
"""Of report.html of the quickstart, 101 cases."""
NOTE_READY = """
new MutationObserver(() => {
  const state = document.documentElement?.dataset.ready;
  if (state && !(state in (window.readyAt ??= {}))) window.readyAt[state] = performance.now();
}).observe(document, {subtree: true, attributes: true, attributeFilter: ["data-ready"]});
"""
CHANGE = """async ([selector, value]) => {
  const field = document.querySelector(selector), start = performance.now();
  field.value = value;
  field.dispatchEvent(new Event(field.type === "search" ? "input" : "change", {bubbles: true}));
  await new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)));
  return performance.now() - start;
}"""
PLACES = {
    "methods end": (1440, 900, "document.querySelector('#better table').getBoundingClientRect().bottom + scrollY"),
    "chart ends": (390, 844, "document.querySelector('#better table').getBoundingClientRect().bottom + scrollY"),
}
OPEN = """async () => {
  const start = performance.now(), pane = document.querySelector("#pane"), before = pane.firstChild;
  document.querySelector("#list [role=option]:nth-child(3)").click();
  while (pane.firstChild === before) await new Promise((resolve) => setTimeout(resolve, 1));
  return performance.now() - start;
}"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, nargs="+", default=[101, 2_000, 20_000])
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--pages", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--large", action="store_true")
    parser.add_argument("--small", action="store_true", help="the smallest size: does it work?")
    parser.add_argument("--make", nargs=3, metavar=("PAGE", "RUN", "FILE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.make:
        print(json.dumps(made(options.make[0], RunFolder(Path(options.make[1])), Path(options.make[2]))))
        return
    if options.small:
        options.cases, options.rounds, options.pages = [101], 1, ["report"]
    with tempfile.TemporaryDirectory() as folder:
        for page in options.pages:
            source = run_for(page, folder)
            before: Mapping[str, float] = {}
            for cases in [*options.cases, *([200_000] if options.large else [])]:
                figures = figures_of(page, source, Path(folder), max(1, round(cases / CASES[page])), options.rounds)
                say(page, figures, before)
                before = figures


def run_for(page: str, folder: str) -> Path:
    """The run of the demonstration set that a page is of."""
    overrides: dict[str, Any] = {"experiment": "quickstart", "output_dir": f"{folder}/outputs"}
    if page == "scores":
        names = sorted({path.stem for path in (ROOT / "conf" / "metrics").glob("*.yaml")} - NEEDS)
        overrides |= {"metrics": names, "metrics.retrieval.k": [1, 3, 5, 10], "name": "scores"}
    with redirect_stdout(StringIO()), redirect_stderr(StringIO()):
        return ragpipe.run(overrides).path.resolve()


def figures_of(page: str, source: Path, folder: Path, times: int, rounds: int) -> dict[str, float]:
    """All figures of one page of the run, `times` as long."""
    run = grow(source, folder / "grown", times)
    file = folder / "grown" / ("compare.html" if page == "compare" else "report.html")
    words = [sys.executable, __file__, "--make", page, str(run), str(file)]
    making = json.loads(subprocess.run(words, check=True, stdout=subprocess.PIPE).stdout)
    beside = sum(path.stat().st_size for path in file.parent.glob(f"{file.stem}.data/*"))
    sizes = {"page MB": file.stat().st_size / 1e6, "beside MB": beside / 1e6}
    figures = {"cases": times * CASES[page], **making, **sizes, **measured(page, file, rounds)}
    shutil.rmtree(run)
    return figures


def made(page: str, run: RunFolder, file: Path) -> dict[str, float]:
    """Write a page: CPU seconds, and the peak of the process over what it had before."""
    before, start = _peak_mb(), time.process_time()
    if page != "compare":
        file.unlink(missing_ok=True)
        write_report_files(run, run.iteration(1), ReportSettings(formats=["html"]))
    else:
        with ExitStack() as stack:
            base, new = (stack.enter_context(side_of(run, method)) for method in ("baseline", "rerank"))
            settings = CompareSettings(kind="methods")
            comparisons = compare_sides(base, [new], settings)
            document = comparison_document("methods", base, [new], comparisons, settings)
            start = time.process_time()
            write_page(file, compare_page(document, base, [new], comparisons))
    return {"write s": time.process_time() - start, "write peak MB": _peak_mb() - before}


def _peak_mb() -> float:
    """The peak of this process. The system's own figure goes first: `ru_maxrss` begins at what the parent had."""
    status = Path("/proc/self/status")
    if status.is_file():
        return float(next(line.split()[1] for line in status.read_text().splitlines() if line.startswith("VmHWM"))) / 1000
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000


def measured(page: str, file: Path, rounds: int) -> dict[str, float]:
    """What the browser needs, the least of the rounds; elements and the heap of the script with a case open."""
    times: dict[str, list[float]] = {}
    with chromium() as browser:
        for _ in range(rounds):
            with open_page(browser) as opened:
                tab = opened.page
                tab.add_init_script(NOTE_READY)
                tab.goto(file.as_uri())
                tab.wait_for_selector("html[data-ready=all]", state="attached", timeout=120_000)
                ready = tab.evaluate("readyAt")
                steps = {
                    "ready": min(ready.values()),
                    "texts read": ready["all"],
                    "first search": tab.evaluate(CHANGE, ["#q", "revenue"]),
                    "next search": tab.evaluate(CHANGE, ["#q", "revenue o"]),
                    "no search": tab.evaluate(CHANGE, ["#q", ""]),
                    "filter": tab.evaluate(CHANGE, [*FILTERS[page]]),
                    "no filter": tab.evaluate(CHANGE, [FILTERS[page][0], ""]),
                    "open a case": tab.evaluate(OPEN),
                    "sort": tab.evaluate(CHANGE, [*SORTED[page]]),
                }
                for name, milliseconds in steps.items():
                    times.setdefault(name, []).append(milliseconds / 1000)
                tab.wait_for_timeout(200)
                elements = tab.evaluate("document.querySelectorAll('*').length")
                session = tab.context.new_cdp_session(tab)
                session.send("HeapProfiler.collectGarbage")
                heap = session.send("Runtime.getHeapUsage")["usedSize"]
                case_height = tab.evaluate("document.querySelector('#pane').scrollHeight")
                assert not opened.faults, opened.faults
        shape = {"elements": elements, "case height": case_height, "heap MB": heap / 1e6}
        for name, (width, height, place) in PLACES.items() if page != "compare" else ():
            with open_page(browser, width=width, height=height) as opened:
                opened.open(file)
                shape[name] = opened.page.evaluate(place)
    return {**{name: min(values) for name, values in times.items()}, **shape}


def say(page: str, figures: Mapping[str, float], before: Mapping[str, float]) -> None:
    """Print a line per figure, with its budget and its ratio to that of the size before."""
    cases = int(figures["cases"])
    budgets = dict(BUDGETS) if cases <= 21_000 else {}
    if page == "report" and cases <= CASES["report"]:
        budgets["page MB"] = QUICKSTART_MB
    for name, value in figures.items():
        ratio = f"(x {value / before[name]:.1f})" if before.get(name) else ""
        if name != "cases":
            say_goal(f"{page}.html, {cases:,} cases: {name}", value, ratio, budgets.get(name))


# --- a run folder made long: the cases of a finished run many times over, each with texts of its own

GROUP = 1000  # rows in a row group, as a run writes them
_WORDS = [f"{a}{b}{c}" for a in ("ka", "lo", "mi", "tre") for b in ("na", "ro", "sti", "ve") for c in ("", "l", "nd", "s")]


def grow(source: Path, target: Path, times: int, *, seed: int = 0) -> Path:
    """Copy the run `source` to `target` with `times` as many samples and cases.

    Copy n has the sample ids `<id>-<n>`. Answers get words of their own; contexts have about 700 characters of random words,
    the same for equal ids of a copy whatever `seed` is, so that two grown runs share them.
    """
    shutil.copytree(source, target, symlinks=True, ignore=shutil.ignore_patterns("seal.json"))  # its tables are other ones
    samples = pq.read_table(source / "samples.parquet")
    outputs = pq.read_table(source / "outputs.parquet")
    _write(target / "samples.parquet", [_renamed(samples, "id", n) for n in range(times)])
    _write(target / "outputs.parquet", [_outputs(outputs, n, samples.num_rows) for n in range(times)])
    for path in sorted(source.glob("iteration-*/records.parquet")):
        records, answers = pq.read_table(path), Random(seed)
        copies = []
        for n in range(times):
            texts = [f"{text or ''} {_text(answers, 20)}" for text in records["answer"].to_pylist()]
            copy = _renamed(records, "sample_id", n)
            copies.append(copy.set_column(copy.schema.get_field_index("answer"), "answer", pa.array(texts)))
        _write(target / path.relative_to(source), copies)
        for name in ("scores.parquet", "judge_inputs.parquet"):
            table = pq.read_table(path.with_name(name))
            _write(target / path.relative_to(source).with_name(name), [_renamed(table, "sample_id", n) for n in range(times)])
    return target


def _renamed(table: pa.Table, column: str, n: int) -> pa.Table:
    names = pc.binary_join_element_wise(table[column], str(n), "-")
    return table.set_column(table.schema.get_field_index(column), column, names)


def _outputs(outputs: pa.Table, n: int, n_samples: int) -> pa.Table:
    copy = _renamed(outputs, "sample_id", n)
    rows = pc.add(copy["sample_row"], n * n_samples)
    chunks = [
        [{**chunk, "text": _text(Random(f"{chunk['id']}-{n}"), 110)} for chunk in listed or ()]
        for listed in copy["chunks"].to_pylist()
    ]
    copy = copy.set_column(copy.schema.get_field_index("sample_row"), "sample_row", rows)
    field = copy.schema.field("chunks")
    return copy.set_column(copy.schema.get_field_index("chunks"), field, pa.array(chunks, field.type))


def _text(random: Random, words: int) -> str:
    return " ".join(random.choices(_WORDS, k=words))


def _write(path: Path, tables: list[pa.Table]) -> None:
    table = pa.concat_tables([one.cast(tables[0].schema) for one in tables])
    pq.write_table(table, path, row_group_size=GROUP)


if __name__ == "__main__":
    main()

"""What the comparison page costs: its making, its size, and how long a browser needs to open, filter and search it.

    python benchmarks/pages.py [--cases 20000] [--rounds 3]

Grows a run of the demonstration set to so many cases per method, each with texts of its own,
compares two methods, writes `compare.html`, and opens it in the Chromium of the machine by Playwright (the extra
`dev-browser`). Making is in CPU seconds,
what the browser does in wall seconds, each the least of all rounds. Goals with 20,000 cases: the list stands there in
under 3 s, a filter takes under 0.2 s, no more than 3,000 elements.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from contextlib import ExitStack, redirect_stdout
from io import StringIO
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import ragpipe  # noqa: E402
from ragpipe.comparing.comparison import compare_sides, comparison_document  # noqa: E402
from ragpipe.comparing.settings import CompareSettings  # noqa: E402
from ragpipe.reports.compare.compare_page import compare_page  # noqa: E402
from ragpipe.store.run.run_folder import RunFolder  # noqa: E402
from tests.support.compared_runs import side_of  # noqa: E402
from tests.support.grown_run import grow  # noqa: E402
from tests.support.playwright_pages import chromium, open_page  # noqa: E402

SAMPLES = 40  # of the demonstration set; `baseline` and `rerank` have a case for each


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        with redirect_stdout(StringIO()):
            source = ragpipe.run({"experiment": "quickstart", "output_dir": f"{folder}/outputs"}).path
        run = RunFolder(grow(source.resolve(), Path(folder, "grown"), options.cases // SAMPLES))
        file = Path(folder, "compare.html")
        start = time.process_time()
        with ExitStack() as stack:
            base, new = (stack.enter_context(side_of(run, method)) for method in ("baseline", "rerank"))
            settings = CompareSettings(kind="methods")
            comparisons = compare_sides(base, [new], settings)
            document = comparison_document("methods", base, [new], comparisons, settings)
            compared = time.process_time()
            file.write_text(compare_page(document, base, [new], comparisons), encoding="utf-8")
        print(
            f"compare {compared - start:.1f} s, page {time.process_time() - compared:.1f} s, {file.stat().st_size / 1e6:.1f} MB"
        )
        measure(file, options.rounds)


def measure(file: Path, rounds: int) -> None:
    """Print the least time of each step over the rounds."""
    times: dict[str, list[float]] = {}
    with chromium() as browser:
        for _ in range(rounds):
            with open_page(browser) as opened:
                page, last = opened.page, time.perf_counter()

                def step(name: str, last: float) -> float:
                    times.setdefault(name, []).append(time.perf_counter() - last)
                    return time.perf_counter()

                page.goto(file.as_uri(), wait_until="commit")
                page.wait_for_selector("html[data-ready]", state="attached")
                last = step("list ready", last)
                page.wait_for_selector("html[data-ready=all]", state="attached")
                last = step("texts read", last)
                page.select_option("#flip", "to_failed")
                last = step("filter", last)
                page.click("#reset")
                last = time.perf_counter()
                page.fill("#q", "revenue")
                last = step("search", last)
                page.focus("#list")
                page.keyboard.press("Enter")
                page.wait_for_selector("#pane .columns .text")
                step("open a case", last)
                elements = page.evaluate("document.querySelectorAll('*').length")
    for name, seconds in times.items():
        print(f"{name}: {min(seconds):.2f} s")
    print(f"elements: {elements:,}")


if __name__ == "__main__":
    main()

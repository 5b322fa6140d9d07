"""Which jobs of a sweep were judged in the same way, and how far the others' ways lie from the first on the same answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from ragpipe.comparing.comparison import Shifts, judging_differences, judging_shifts
from ragpipe.comparing.judge_drift import known_alarms
from ragpipe.comparing.side import opened_side
from ragpipe.engine.runs.manifest import checked_manifest
from ragpipe.reports.job_comparison import OtherJudging
from ragpipe.store.run.run_folder import RunFolder


def other_judgings(runs: Mapping[int, tuple[Path, Mapping[str, Any]]]) -> dict[int, OtherJudging]:
    """For each job that was judged otherwise than the first one what differs; of the first job of each such way also how far it lies
    from the first way on the same answers.

    `runs` are the folder and the `final/metrics.json` of each job with results. Raises DataError for what cannot be read.
    """
    manifests = {number: checked_manifest(RunFolder(folder)) for number, (folder, _) in runs.items()}
    alarms = [
        alarm for number, (folder, _) in runs.items() for alarm in known_alarms(RunFolder(folder), manifests[number])
    ]
    ways: dict[int, list[int]] = {}  # the jobs that were judged like the first of them
    for number, manifest in manifests.items():
        alike = (first for first in ways if not judging_differences(manifests[first], manifest, alarms))
        ways.setdefault(next(alike, number), []).append(number)
    judgings = {}
    for first, numbers in list(ways.items())[1:]:
        base = _with_the_answers(manifests, next(iter(ways.values())), first)
        differences = judging_differences(manifests[base], manifests[first], alarms)
        shifts = _shifts(runs, manifests, base, first)
        for number in numbers:
            judgings[number] = OtherJudging(first, base, differences, shifts if number == first else {})
    return judgings


def _with_the_answers(manifests: Mapping[int, Mapping[str, Any]], numbers: Sequence[int], job: int) -> int:
    """The first of some jobs with the frozen outputs of `job`; else with its system; else the first."""

    def rank(number: int) -> tuple[bool, bool]:
        frozen = (manifests[one]["data"].get("frozen", {}).get("outputs.parquet") for one in (number, job))
        systems = (manifests[one]["identity"].get("system") for one in (number, job))
        return len({*frozen}) > 1, next(systems) != next(systems)

    return min(numbers, key=rank)


def _shifts(
    runs: Mapping[int, tuple[Path, Mapping[str, Any]]], manifests: Mapping[int, Mapping[str, Any]], base: int, job: int
) -> Shifts:
    with ExitStack() as stack:
        sides = [
            stack.enter_context(opened_side(RunFolder(runs[number][0]), manifests[number])) for number in (base, job)
        ]
        return judging_shifts(sides[0], sides[1], float(sides[0].metrics["scoring"]["level"]))

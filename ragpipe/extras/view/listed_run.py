"""One run as the index knows it, read from the small files of its folder."""

from __future__ import annotations

import math
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from ragpipe.comparison.headline import headline_scores
from ragpipe.core.digest import sha256
from ragpipe.core.errors import DataError, FormatMismatch, Problem, RagpipeError
from ragpipe.core.score import judge_name
from ragpipe.core.text import on_one_line
from ragpipe.core.usage import Usage
from ragpipe.extras.view.live_cases import LiveCase, newest_cases
from ragpipe.extras.view.run_files import bytes_below, file_mark, is_file_below, json_below, manifest_below
from ragpipe.report.model import PageLink
from ragpipe.report.section_page import pages_of
from ragpipe.report.styled_text import is_recorded, money, price
from ragpipe.runs.manifest import COMPLETE, INCOMPLETE, JUDGING_DONE
from ragpipe.score.gate_results import trust_words
from ragpipe.store.processes import Process, is_alive
from ragpipe.store.progress import SILENT_S, ProgressState

State = Literal["running", "stalled", "stopped", "incomplete", "complete", "broken", "refused"]
UNFINISHED: tuple[State, ...] = ("running", "stalled", "stopped")
"""States of runs that have no final figures yet."""
_PROGRESS_MAX = 16 << 20  # bytes of .progress.json
_LOCK_MAX = 64 << 10
_CONFIG_MAX = 4 << 20
_SPEAKS = ("collecting", "judging")  # the phases in which counters are written every 2 s
_ITERATIONS = re.compile(rb"^iterations: (\d{1,6})\s*$", re.MULTILINE)
_RAGPIPE = re.compile(r"(^|[/\\])ragpipe([/\\]__main__\.py|(-script)?(\.exe|\.py)?)?$")


@dataclass(frozen=True)
class Counters:
    """What a run says of itself, and its cases over all iterations: `done` of `total`. `state` is None before it says anything."""

    state: ProgressState | None
    done: int
    total: int

    @property
    def phase(self) -> str:
        """What it does; empty where it does not say."""
        return self.state.phase if self.state else ""

    @property
    def silent_s(self) -> float:
        """Seconds since it last said something; 0 where it never did."""
        return self.state.silent_s() if self.state else 0.0


@dataclass(frozen=True)
class RunState:
    """The state of a run with its reason in words. `resume` is the command that goes on with it; empty where it is not known, or
    nothing is to be resumed. `is_gone`: the process that worked on it has ended, so that nothing of it is in flight."""

    state: State
    reason: str = ""
    counters: Counters | None = None
    resume: str = ""
    is_gone: bool = False


def _lock_holder(root: Path) -> tuple[Process, str] | None:
    """The process that the lock file of a run folder names, and the words it was started with; None where it names none."""
    try:
        content = json_below(root, ".lock", limit=_LOCK_MAX)
    except RagpipeError:
        return None
    if type(pid := content.get("pid")) is not int:
        return None
    return Process(str(content.get("host")), pid, str(content.get("mark") or "")), str(content.get("command") or "")


def run_state(root: Path, states: Mapping[str, str], *, has_figures: bool) -> RunState:
    """The state of a run folder. `states` says how far each iteration is, as the manifest has it, empty before the first one is
    judged; `has_figures` whether the figures over all iterations are there."""
    holder = _lock_holder(root)
    alive = is_alive(holder[0]) if holder else False  # None where this machine cannot tell
    is_done = has_figures and bool(states) and all(state in (COMPLETE, INCOMPLETE) for state in states.values())
    if is_done and not alive:
        return _ended(root, states)
    counters = read_counters(root, states)
    if is_done and (counters is None or counters.phase in ("", "done")):
        return _ended(root, states)  # a task over the finished run holds the lock
    if holder is None:
        reason = "ended before all was judged; start its command again to go on"
        return RunState("stopped", reason, counters, _last_command(counters), is_gone=True)
    return _started(*holder, alive, counters)


def _ended(root: Path, states: Mapping[str, str]) -> RunState:
    if INCOMPLETE in states.values():
        reason = "some calls failed for a passing reason; start its command again"
        return RunState("incomplete", reason, resume=_last_command(read_counters(root, states)), is_gone=True)
    return RunState("complete", is_gone=True)


def _last_command(counters: Counters | None) -> str:
    """The command that goes on with a run, from what its last process said of itself."""
    return resume_command(counters.state.command) if counters and counters.state else ""


def _started(holder: Process, command: str, alive: bool | None, counters: Counters | None) -> RunState:
    process, resume = f"process {holder.pid}", resume_command(command)
    if alive is False:
        return RunState("stalled", f"{process} is gone", counters, resume, is_gone=True)
    silent_s = 0.0 if counters is None else counters.silent_s
    speaks = counters is not None and counters.phase in _SPEAKS
    if silent_s <= SILENT_S or not (speaks or alive is None):
        return RunState("running", "", counters)
    reason = f" from {process} on {holder.host}"
    if alive:
        reason = f", though {process} is still there: end it before you start it again"
    return RunState("stalled", f"no sign for {rough_duration(silent_s)}{reason}", counters, resume)


def resume_command(command: str) -> str:
    """The words of a start as a command that goes on with it; empty for those of another program.

    The folder may come from anybody: only a start of ragpipe is repeated, each word quoted for a shell.
    """
    try:
        words = shlex.split(command)
    except ValueError:
        return ""
    return "" if not words or not _RAGPIPE.search(words[0]) else f"python -m ragpipe {shlex.join(words[1:])}"


def read_counters(root: Path, states: Mapping[str, str]) -> Counters | None:
    """The counters of the newest iteration, its cases counted over all iterations; None where there is no progress file."""
    number = _newest_iteration(root)
    try:
        content = json_below(root, f"iteration-{number}", ".progress.json", limit=_PROGRESS_MAX)
    except RagpipeError:
        return None
    try:
        state = ProgressState.from_json(content["state"])
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError):
        return Counters(None, 0, 0)
    total, done = state.cases.total, state.cases.done
    if state.phase == "collecting":
        return Counters(state, done, total)
    judged = sum(value in JUDGING_DONE for key, value in states.items() if key != str(number))
    return Counters(state, done + judged * total, max(_planned_iterations(root), judged + 1) * total)


def _newest_iteration(root: Path) -> int:
    try:
        names = [path.name for path in root.iterdir()]
    except OSError:
        return 1
    numbers = [int(match[1]) for name in names if (match := re.fullmatch(r"iteration-([1-9]\d{0,5})", name))]
    return max(numbers, default=1)


def _planned_iterations(root: Path) -> int:
    """`iterations` of the run's configuration; 1 where it cannot be read."""
    try:
        match = _ITERATIONS.search(bytes_below(root, "config.yaml", limit=_CONFIG_MAX))
    except RagpipeError:
        return 1
    return int(match[1]) if match else 1


def rough_duration(seconds: float) -> str:
    """`41 s`, `3 min`, `2 h 05 min`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60:02d} min"


FILES = ("report.html", "report.md")
"""The reports of a run that the page links to."""
_PAGES = 20  # other pages of a run
_MARKED = (
    ("agreement.html",), ("selftest.html",), ("calibration",), ("labels",),
    ("manifest.json",), ("gates.json",), ("final", "metrics.json"), ("final", "cost.json"), (".lock",), ("calibration", "calibration.json"),
    *((name,) for name in FILES),
)  # fmt: skip
_OF_CHECKS = (", mutated", ", audited", ", spot check")  # ends of the names of data that a check of a judge made
_REASON = 160  # characters of what is wrong with a folder


@dataclass(frozen=True)
class MainScore:
    """The score a run is known by: the overall score, else its first headline score, over all `methods`. `noise` is the judge's noise
    floor where each case was judged several times."""

    name: str
    mean: float
    low: float | None
    high: float | None
    scale: tuple[float | None, float | None]
    noise: float | None
    methods: tuple[str, ...] = ()


@dataclass(frozen=True)
class GatesVerdict:
    """What the gates say: `blocked`, `warned`, `passed` or `none`, in words, with the sentences of those that did not pass."""

    outcome: str
    words: str
    sentences: Sequence[str] = ()


@dataclass(frozen=True)
class ListedRun:
    """One run folder. `key` is its path below the output folder, with `/`; a folder that cannot be read has its reason in
    `status` and nothing else. `mark` is what its files were before they were read. `series` is equal for runs whose main scores were measured in the same way on the same cases. `pages` are the other
    pages in its folder, `cases` the newest ones while it goes on."""

    key: str
    name: str
    run_id: str
    root: Path
    created: datetime
    status: RunState
    files: tuple[str, ...] = ()
    judge: str = ""
    data: str = ""
    n_cases: int | None = None
    main: MainScore | None = None
    verdict: GatesVerdict | None = None
    cost: str = ""
    series: str = ""
    selftest: bool = False
    pages: tuple[PageLink, ...] = ()
    cases: tuple[LiveCase, ...] = ()
    mark: tuple[Any, ...] = ()

    @property
    def is_unfinished(self) -> bool:
        """Whether its state may change without a change of its marked files."""
        return self.status.state in UNFINISHED


def run_mark(root: Path) -> tuple[Any, ...]:
    """Times and sizes of the files that a listed run is read from: equal marks, equal content."""
    return tuple(file_mark(root, *parts) for parts in _MARKED)


def read_run(root: Path, key: str) -> ListedRun:
    """Read a run folder. Never raises: what cannot be read is listed with the reason."""
    name, _, run_id = key.rpartition("/")
    created, mark = _changed_at(root), run_mark(root)
    try:
        _refuse_links(root)
        if file_mark(root, "manifest.json") is None:
            return ListedRun(key, name, run_id, root, created, _unstarted(root), mark=mark)
        return replace(_read(root, key, manifest_below(root)), mark=mark)
    except FormatMismatch as error:
        status = RunState("refused", on_one_line(error.problems[0].found, _REASON))
    except DataError as error:
        problem = error.problems[0]
        status = RunState("broken", on_one_line(f"{Path(problem.where).name}: {problem.found}", _REASON))
    except Exception as error:  # the folder may hold anything: one such run must not take the list away
        status = RunState("broken", on_one_line(f"{type(error).__name__}: {error}", _REASON))
    return ListedRun(key, name, run_id, root, created, status, mark=mark)


def _refuse_links(root: Path) -> None:
    """Raises DataError for a link among the files and folders of a run: it could lead out of the output folder."""
    with os.scandir(root) as entries:
        links = sorted(entry.name for entry in entries if entry.is_symlink())
    if links:
        raise DataError("cannot read this run", [Problem(links[0], "file", "a symbolic link", "the file itself")])


def _unstarted(root: Path) -> RunState:
    """The state of a folder without a manifest: outputs are still collected, or were."""
    status = run_state(root, {}, has_figures=False)
    return RunState("broken", "no manifest.json") if status.state == "stopped" and status.counters is None else status


def _read(root: Path, key: str, manifest: Mapping[str, Any]) -> ListedRun:
    name, _, run_id = key.rpartition("/")
    states = {str(number): str(state) for number, state in manifest["iterations"].items()}
    has_figures = file_mark(root, "final", "metrics.json") is not None
    status = run_state(root, states, has_figures=has_figures)
    figures: dict[str, Any] = {}
    if has_figures and not (status.state in UNFINISHED and not states):
        metrics = json_below(root, "final", "metrics.json")
        figures = {
            "judge": _judge(root, metrics),
            "n_cases": int(metrics["n_cases"]),
            "main": run_score(metrics),
            "verdict": _verdict(root),
            "cost": _cost(json_below(root, "final", "cost.json")),
        }
    elif status.counters is not None and status.counters.state is not None:
        figures["cost"] = money(status.counters.state.usd)
    if status.state in UNFINISHED:
        scoring = manifest["identity"].get("scoring")
        figures["cases"] = newest_cases(root, _newest_iteration(root), scoring if isinstance(scoring, dict) else {})
    data = str(manifest["data"]["name"])
    return ListedRun(
        *(key, name, run_id, root, _created(manifest, root), status),
        files=tuple(file for file in FILES if is_file_below(root, file)),
        pages=tuple(islice(pages_of(root), _PAGES)),
        data=data,
        series=_series(manifest),
        selftest=data.endswith(_OF_CHECKS) or file_mark(root, "selftest.json") is not None,
        **figures,
    )


def run_score(metrics: Mapping[str, Any]) -> MainScore | None:
    """The main score of `final/metrics.json`; None where no score has a mean."""
    scores, declared = metrics["overall"]["scores"], metrics["declared"]
    measured = [name for name in scores if scores[name].get("mean") is not None]
    names = headline_scores(metrics, metrics, measured)
    mean = _finite(scores[names[0]]["mean"]) if names else None
    if mean is None:
        return None
    score, scale = scores[names[0]], declared[names[0]]
    interval, noise = score.get("interval") or {}, score.get("noise") or {}
    low, high, bottom, top = map(_finite, (interval.get("low"), interval.get("high"), scale["low"], scale["high"]))
    methods = tuple(map(str, metrics["by"].get("method", {})))
    return MainScore(names[0], mean, low, high, (bottom, top), _finite(noise.get("floor")), methods)


def _finite(value: Any) -> float | None:
    """A number of a JSON file; None for null and for NaN. Raises ValueError or TypeError for anything else."""
    return None if value is None or not math.isfinite(number := float(value)) else number


def _judge(root: Path, metrics: Mapping[str, Any]) -> str:
    place = ("calibration", "calibration.json")
    beside = json_below(root, *place) if is_file_below(root, "/".join(place)) else None
    return f"{judge_name(metrics['judge']['label'])} ({trust_words(metrics, beside)})"


def _verdict(root: Path) -> GatesVerdict:
    gates = json_below(root, "gates.json")["gates"] if file_mark(root, "gates.json") is not None else ()
    if not gates:
        return GatesVerdict("none", "no gates")
    outcomes = [str(gate["outcome"]) for gate in gates]
    sentences = tuple(str(gate["sentence"]) for gate in gates if gate["outcome"] in ("blocked", "warned"))
    blocked, warned = outcomes.count("blocked"), outcomes.count("warned")
    if blocked:
        return GatesVerdict("blocked", f"blocked by {blocked} of {len(gates)} gates", sentences)
    if warned:
        return GatesVerdict("warned", f"{warned} of {len(gates)} gates warn", sentences)
    passed = outcomes.count("passed")
    words = f"passed {passed} of {len(gates)} gates" if passed < len(gates) else f"passed, {len(gates)} gates"
    return GatesVerdict("passed", words)


def _cost(cost: Mapping[str, Any]) -> str:
    used, spent = cost["total"]["used"], cost["total"]["spent"]
    return "no call" if used["calls"] == used["calls_computed"] or is_recorded(used, spent) else price(Usage.from_json(used))


def _series(manifest: Mapping[str, Any]) -> str:
    """All that the main score is measured with: metrics, judge, prompts, scoring and samples (`comparing.score_series`)."""
    identity, data = manifest["identity"], manifest["data"]
    samples = data.get("frozen", {}).get("samples.parquet") or data["digest"]
    parts = [identity.get(part) for part in ("metrics", "judge_identity", "parser", "embedder", "scoring")]
    return sha256([parts, samples])[:12]


def _created(manifest: Mapping[str, Any], root: Path) -> datetime:
    try:
        time = datetime.fromisoformat(str(manifest["created_at"]))
        return time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC)
    except (KeyError, ValueError, OverflowError):
        return _changed_at(root)


def _changed_at(root: Path) -> datetime:
    try:
        return datetime.fromtimestamp(root.lstat().st_mtime, UTC)
    except (OSError, ValueError, OverflowError):
        return datetime.fromtimestamp(0, UTC)

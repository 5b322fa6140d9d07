"""The runs below an output folder: listing them, one line per run, and `runs.md`."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.compute as pc

from ragpipe.core.errors import DataError, FormatMismatch, Problem, RagpipeError
from ragpipe.core.score import judge_name
from ragpipe.core.settings import ConfigOrigins
from ragpipe.core.usage import Usage
from ragpipe.report.run_list_page import RunLine, runs_markdown
from ragpipe.report.styled_text import is_recorded, price, share_below_one, whole
from ragpipe.runs.identity import run_differences
from ragpipe.runs.manifest import COMPLETE, FROZEN, INCOMPLETE, JUDGED, checked_manifest, read_manifest, scored_iterations
from ragpipe.score.aggregate import LOST, coverage
from ragpipe.score.gate_results import trust_words
from ragpipe.store.files import write_unless_same
from ragpipe.store.places import is_remote
from ragpipe.store.run_folder import COMPARISONS, LATEST, RUN_ID, RUNS, SWEEPS, HistoryRun, RunFolder
from ragpipe.store.run_tables import check_sealed, read_columns, read_json

LISTED = 200  # runs of a name; each of them is read at the end of every evaluation
DEPTH = 4  # levels of folders below output_dir in which names are looked for


def all_runs(root: Path) -> Iterator[RunFolder]:
    """All run folders below an output folder."""
    for folder in run_list_folders(root):
        yield from (RunFolder(path) for path in sorted(run_folders(folder)))


def write_run_list(folder: Path) -> bool:
    """Write `runs.md` of a name's folder (`outputs/<name>`); True when it had to be written. Raises OutputError.

    Folders that cannot be read are listed as broken and stop nothing.
    """
    lines, older = list_runs(folder)
    return write_unless_same(folder / RUNS, runs_markdown(folder.name, lines, older=older))


class _ListedRun(NamedTuple):
    """A run folder with its manifest; `line` says why the manifest cannot be read, where it cannot."""

    created_at: str
    folder: RunFolder
    manifest: dict[str, Any]
    line: RunLine


def list_runs(folder: Path) -> tuple[list[RunLine], int]:
    """The newest runs of a name, the newest last, and the number of older runs that are left out."""
    runs = sorted((_listed_run(path) for path in sorted(run_folders(folder))), key=lambda run: run.created_at)
    manifests = {str(run.manifest["run_id"]): run.manifest for run in runs if "run_id" in run.manifest}
    older = max(0, len(runs) - LISTED)
    lines, previous = [], dict[str, Any]()
    for position, run in enumerate(runs):
        if position >= older:
            compared_with = manifests.get(str(run.manifest.get("source_run")), previous)
            lines.append(run.line if run.line.unread else _line(run.folder, run.manifest, compared_with))
        previous = run.manifest or previous
    return lines, older


def _listed_run(path: Path) -> _ListedRun:
    folder = RunFolder(path)
    try:
        manifest = read_manifest(folder)
        if not manifest:
            return _ListedRun("", folder, {}, RunLine(path.name, broken="no manifest.json"))
        return _ListedRun(str(manifest["created_at"]), folder, manifest, RunLine(path.name))
    except FormatMismatch as error:
        return _ListedRun("", folder, {}, RunLine(path.name, refused=error.problems[0].found))
    except (RagpipeError, KeyError, OSError) as error:
        return _ListedRun("", folder, {}, RunLine(path.name, broken=_cause(error)))


def _line(folder: RunFolder, manifest: Mapping[str, Any], before: Mapping[str, Any]) -> RunLine:
    try:
        numbers = scored_iterations(folder)
        metrics = [read_json(folder.iteration(number).metrics) for number in numbers]
        costs = [read_json(folder.iteration(number).cost) for number in numbers]
        return RunLine(
            folder.run_id,
            created=str(manifest["created_at"])[:16].replace("T", " "),
            state=_state(manifest, numbers),
            cases=whole(metrics[-1]["n_cases"]) if metrics else "-",
            judge=_judge(folder, metrics),
            scores=_scores(metrics),
            gates=_gates(folder),
            cost=_cost(costs),
            before=str(before.get("run_id", "")),
            differences=run_differences(before["identity"], manifest["identity"]) if before else (),
        )
    except (RagpipeError, KeyError, TypeError, ValueError, AttributeError, OSError) as error:
        return RunLine(folder.run_id, broken=_cause(error))


def _state(manifest: Mapping[str, Any], scored: list[int]) -> str:
    states = manifest["iterations"]
    if not scored:
        return "not scored"
    is_complete = all(state == COMPLETE for state in states.values())
    several = f", {len(scored)} iterations" if len(scored) > 1 else ""
    return (COMPLETE if is_complete else INCOMPLETE) + several


def _judge(folder: RunFolder, metrics: list[dict[str, Any]]) -> str:
    if not metrics:
        return "-"
    beside = read_json(folder.own_calibration) if folder.own_calibration.is_file() else None
    return f"{judge_name(metrics[-1]['judge']['label'])} ({trust_words(metrics[-1], beside)})"


def _scores(metrics: list[dict[str, Any]]) -> dict[str, str]:
    """Means over the iterations: the overall score, then the scores with the largest weights, then the others."""
    if not metrics:
        return {}
    last = metrics[-1]
    weights = last["scoring"].get("weights_used", {})
    names = sorted(last["overall"]["scores"], key=lambda name: (name != "overall_score", -weights.get(name, 0)))
    texts = {}
    for name in names:
        scores = [item["overall"]["scores"][name] for item in metrics if name in item["overall"]["scores"]]
        means = [score["mean"] for score in scores if score["mean"] is not None]
        if means:
            texts[name] = f"{sum(means) / len(means):.3f} ({_judgements(scores)})"
    return texts


def _judgements(scores: Sequence[Mapping[str, Any]]) -> str:
    """The number of judgements behind a mean, and the coverage where some failed."""
    share = coverage({name: sum(score.get(name, 0) for score in scores) for name in ("n_ok", *LOST)})
    n = sum(score["n_ok"] for score in scores)
    return whole(n) + (f", coverage {share_below_one(share)}" if share is not None and share < 1 else "")


def _gates(folder: RunFolder) -> str:
    if not folder.gates.is_file():
        return "-"
    outcomes = [gate["outcome"] for gate in read_json(folder.gates)["gates"]]
    if not outcomes:
        return "none"
    blocked, warned, passed = (outcomes.count(outcome) for outcome in ("blocked", "warned", "passed"))
    of = "" if passed == len(outcomes) else f" of {len(outcomes)}"
    text = f"{blocked} of {len(outcomes)} block" if blocked else f"{passed}{of} pass"
    return text + (f", {warned} warn" if warned else "")


def _cost(costs: list[dict[str, Any]]) -> str:
    used = [cost["used"] for cost in costs]
    recorded = all(is_recorded(cost["used"], cost["spent"]) for cost in costs)
    if recorded or all(usage["calls"] == usage["calls_computed"] for usage in used):
        return "no call"
    return price(Usage.sum(Usage.from_json(usage) for usage in used))


def _cause(error: Exception) -> str:
    """The cause on one line: for our own errors what was found, else the error with its name."""
    if isinstance(error, DataError) and error.problems:
        return f"{Path(error.problems[0].where).name}: {error.problems[0].found}"
    return str(error) if isinstance(error, RagpipeError) else f"{type(error).__name__}: {error}"


def run_folders(folder: Path) -> Iterator[Path]:
    """The run folders of a name. Links are skipped, and so is a folder that this user may not read, unless its name is a run id."""
    for path in _folders(folder):
        if RUN_ID.fullmatch(path.name) or _has_manifest(path):
            yield path


def run_list_folders(root: Path, depth: int = DEPTH) -> Iterator[Path]:
    """Every folder below `root` that holds runs: a name may have levels (`team/nightly`). Comparisons are not runs."""
    for path in sorted(_folders(root)) if depth else ():
        if not path.name.startswith(".") and path.name not in (SWEEPS, COMPARISONS):
            if next(run_folders(path), None) is not None:
                yield path
            if not _has_manifest(path):
                yield from run_list_folders(path, depth - 1)


def _folders(folder: Path) -> list[Path]:
    """The folders in a folder without the links among them; none where it is not there, or this user may not read it."""
    try:
        with os.scandir(folder) as entries:
            return [folder / entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []


def _has_manifest(folder: Path) -> bool:
    return os.path.exists(folder / "manifest.json")  # False without permission, where Path.exists raises


def named_folders(output_dir: str, name: str | None) -> list[Path]:
    """The folders below `output_dir` that hold the runs of a name; None for every name. Raises DataError where there is none."""
    root = Path(output_dir)
    named = root if name is None else root / name
    folders = [folder for folder in run_list_folders(root) if name is None or folder == named]
    if folders:
        return folders
    fix = "name=... and output_dir=... as the runs were started with"
    raise DataError("there are no runs", [Problem(str(named), "run", "no run folder in it", "runs of an evaluation", fix)])


Methods = tuple[str | None, str | None]
"""The methods of base and candidate whose cases are paired; None for all."""


def paired_answers(base: RunFolder, candidate: RunFolder, methods: Sequence[Methods]) -> dict[str, Any]:
    """What names the answers of two runs that are paired, by frozen tables and methods; None for the only method of a base. Raises DataError."""
    data = {side: checked_manifest(folder)["data"] for side, folder in (("base", base), ("candidate", candidate))}
    tables = {side: dict(of_side.get("frozen") or {"tables": of_side["tables"]}) for side, of_side in data.items()}
    is_only = len(pc.unique(read_columns(base.outputs, ["method"])["method"])) == 1
    return {**tables, "methods": [[None if is_only else of_base, of_candidate] for of_base, of_candidate in methods]}


def find_preference(
    base: RunFolder, candidate: RunFolder, methods: Methods = (None, None), among: Sequence[RunFolder] = ()
) -> RunFolder | None:
    """The newest scored run beside the candidate in which a judge was asked about the pairs of these two; `among` some and what was scored
    again from them. None where there is none."""
    asked = [_asked_identity(checked_manifest(folder)) for folder in among]
    wanted = paired_answers(base, candidate, [methods])
    either = [*wanted["methods"], *([list(methods[::-1])] if base.root == candidate.root else [])]
    found: dict[str, RunFolder] = {}
    for place in {folder.root.parent for folder in among} or {candidate.root.parent}:
        for folder in map(RunFolder, run_folders(place)):
            with suppress(RagpipeError):
                manifest = checked_manifest(folder)
                pair = manifest["data"].get("pair", {})
                is_wanted = {**wanted, "methods": pair.get("methods")} == pair and any(two in pair["methods"] for two in either)
                if is_wanted and folder.final.metrics.is_file() and (not among or _asked_identity(manifest) in asked):
                    found[str(manifest["created_at"])] = folder
    return found[max(found)] if found else None


def _asked_identity(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """What a judge was asked in a run, however its replies are scored."""
    return {name: value for name, value in manifest["identity"].items() if name != "scoring"}


_MUTATED = "selftest.json"


def scored_runs(folder: Path, *, warn: Callable[[str], None]) -> Iterator[HistoryRun]:
    """The runs below the folder of a name that are scored to their end and are as they were sealed, the newest first. `warn`
    gets a line for each that is passed over because it cannot be read or was changed. Runs over the frozen cases of another run
    (judged or scored again) and those of a self-test are not among them."""
    runs: list[HistoryRun] = []
    for path in run_folders(folder):
        run = RunFolder(path)
        try:
            manifest = checked_manifest(run)
        except RagpipeError as error:
            warn(_passed_over(path, error))
            continue
        if not manifest.get("source_run") and run.final.metrics.is_file() and not (path / _MUTATED).exists():
            runs.append(HistoryRun(run, manifest))
    for scored in sorted(runs, key=lambda scored: str(scored.manifest["created_at"]), reverse=True):
        try:
            check_unmodified(scored.folder, scored.manifest["iterations"])
            read_json(scored.folder.final.metrics)
        except RagpipeError as error:
            warn(_passed_over(scored.folder.root, error))
            continue
        yield scored


def _passed_over(path: Path, error: RagpipeError) -> str:
    first = getattr(error, "problems", None)
    what = f"{Path(first[0].where).name}: {first[0].found}" if first else str(error).splitlines()[0]
    return f"passed over: {path}: {what}"


def check_unmodified(source: RunFolder, states: Mapping[str, str]) -> None:
    """Compare the frozen cases of a run, its replies, scores and figures with its seal; reports are not looked at.

    `states` are the states of the iterations by number. What is not sealed yet (a run that never ended, an iteration that is
    being judged) is not checked. Raises DataError that names table, row, case and column.
    """
    sealed = [source.iteration(int(number)) for number, state in states.items() if state != JUDGED]
    paths = [source.root / name for name in FROZEN]
    for iteration in sealed:
        paths += [iteration.judge_inputs, iteration.scores, iteration.records, iteration.metrics]
        paths += [iteration.low_scores, iteration.cost]
    check_sealed(*paths, source.final.metrics, source.final.cost, source.gates)


EXPECTED = "a name, NAME/latest, a run id, a run folder, or latest"
_DEFAULT_NAME = "run"  # of `name` in conf/ragpipe.yaml
_NEAR = 3


def chosen_name(plain: Mapping[str, Any], origins: ConfigOrigins) -> Any:
    """The `name` of the configuration; None where it is the default, which the user did not set."""
    name = plain.get("name")
    return None if name == _DEFAULT_NAME and "name" not in getattr(origins, "chosen", ()) else name


def run_of_task(word: str, plain: Mapping[str, Any], origins: ConfigOrigins, *, key: str = "run") -> RunFolder:
    """The run that `word` names in the configuration of this start; `key` is its key. Raises as `find_named_run`."""
    output_dir = Path(str(plain.get("output_dir", "outputs")))
    return find_named_run(word, output_dir, name=chosen_name(plain, origins), key=key)


def find_named_run(word: str, output_dir: Path, *, name: str | None = None, key: str = "run") -> RunFolder:
    """The run that `word` names: a name, for its newest run; `<name>/<run id>` or `<name>/latest`; a path to a run folder or to
    a `latest`; a run id; or `latest`, the newest run of `name`. A name comes before a path that reads alike. `name`, where the
    user set one, also chooses among several names that have a run with this id; `key` is for messages.

    Raises DataError where there is none, or where several names have a run with this id; FormatMismatch.
    """
    if word == LATEST and (folder := _latest(output_dir, name, key)):
        return folder
    if RUN_ID.fullmatch(word) and (run := _with_id(word, output_dir, name, key)):
        return run
    for path in (output_dir / word, Path(word)):
        if path.is_dir() or path.is_symlink() or path.is_file():
            return RunFolder.find(path)
    if is_remote(word):
        return RunFolder.find(Path(word))  # it says which task reads an address
    known = [str(folder.relative_to(output_dir)) for folder in run_list_folders(output_dir)]
    asked = word.removeprefix(f"{output_dir}/").partition("/latest")[0]
    near = difflib.get_close_matches(asked, known, n=_NEAR)
    names = f"; names in {output_dir}: {', '.join(known[:20]) or 'none'}"
    fix = f"did you mean {' or '.join(near)}?" if near else "task=runs lists all"
    raise _not_found(key, repr(word), EXPECTED + names, fix)


def runs_with_id(run_id: str, folder: Path) -> list[RunFolder]:
    """The runs with this id: that of the name whose folder it is, or of all names below the folder."""
    places = (folder, *run_list_folders(folder))
    return [RunFolder(place / run_id) for place in places if (place / run_id / "manifest.json").is_file()]


def _latest(output_dir: Path, name: str | None, key: str) -> RunFolder | None:
    named = [folder for folder in run_list_folders(output_dir) if name is None or folder == output_dir / name]
    if len(named) > 1:
        names = ", ".join(str(folder.relative_to(output_dir)) for folder in named)
        raise _not_found(key, f"'latest' of {len(named)} names", f"the name of one: {names}", "NAME/latest")
    return RunFolder.find(named[0] / LATEST) if named else None


def _with_id(word: str, output_dir: Path, name: str | None, key: str) -> RunFolder | None:
    runs = [run.root for run in runs_with_id(word, output_dir)]
    if len(runs) > 1 and name is not None:
        runs = [run for run in runs if run.parent == output_dir / name] or runs
    if len(runs) > 1:
        paths = ", ".join(map(str, runs))
        raise _not_found(key, f"{word} under several names", f"one of {paths}", "name the folder")
    return RunFolder.find(runs[0]) if runs else None


def _not_found(key: str, actual: str, expected: str, fix: str) -> DataError:
    return DataError("there is no such run", [Problem("command line", key, actual, expected, fix)])

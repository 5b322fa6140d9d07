"""Verifying a finished run: its inputs against the seal, and every derived file made again and compared."""

from __future__ import annotations

import io
import tempfile
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ragpipe.core.digest import sha256_file
from ragpipe.core.errors import DataError, Problem, RagpipeError
from ragpipe.core.sample import CaseKey
from ragpipe.core.usage import Usage
from ragpipe.judge.question import IMPLEMENTATION
from ragpipe.report.console import Console
from ragpipe.runs.budget import is_priced_as_sealed, sealed_rates
from ragpipe.runs.case_sources import RunSource
from ragpipe.runs.evaluation import Evaluation
from ragpipe.runs.finished_run import FinishedRun
from ragpipe.runs.identity import identity_differences, run_id
from ragpipe.runs.judge_cases import JOURNAL_FORM, case_of
from ragpipe.runs.manifest import SCORING_FILES, derived_and_frozen
from ragpipe.runs.spec import RunSpec, VerifyPolicy
from ragpipe.store.files import is_regular_file
from ragpipe.store.journal import read_entries
from ragpipe.store.run_folder import RunFolder
from ragpipe.store.run_tables import read_json
from ragpipe.store.seals import CHANGED_BYTES, first_difference, open_seal, unchecked


@dataclass(frozen=True)
class RunDifference:
    """A file that differs from what the run wrote: `where` is its path in the run folder, `what` says how it differs."""

    where: str
    what: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what}"


def journal_conflicts(folder: RunFolder, iterations: Sequence[int]) -> Iterator[RunDifference]:
    """One conflict per iteration whose journal finished a case twice with different values of a score, but for cases that
    failed or were asked again (`retry_errors`)."""
    for number in iterations:
        path = folder.iteration(number).journal
        name = path.relative_to(folder.root).as_posix()
        try:
            contradictions = _contradictions(path, number)
        except RagpipeError as error:
            yield RunDifference(name, f"cannot be read: {' '.join(str(error).split())[:300]}")
            continue
        if contradictions:
            cases = "1 case was" if len(contradictions) == 1 else f"{len(contradictions):,} cases were"
            yield RunDifference(
                name,
                f"{cases} finished twice with different results, the first: {contradictions[0]}: replies in the call store were changed, "
                "lost or damaged while the run was made",
            )


def _contradictions(path: Path, iteration: int) -> list[str]:
    settled: dict[CaseKey, dict[str, Any]] = defaultdict(dict)
    found: dict[CaseKey, str] = {}

    def note(entry: dict[str, Any]) -> bool:
        case = case_of(entry, iteration)
        before = settled[case]
        now = {name: value for name, value in entry["result"].items() if value != "error"}
        for name, value in now.items():
            if name in before and before[name] != value and not entry.get("asked_again"):
                found.setdefault(case, f"{case}: {name} {before[name]}, then {value}")
        before |= now
        return False

    read_entries(path, keep=note, form=JOURNAL_FORM)
    return list(found.values())


_FIX = "the run's own replies do not answer its own questions: judge_inputs.parquet, a prompt or a case is not the run's"
_INPUTS = ("config.yaml", "prompts/", "samples.parquet", "outputs.parquet", "index.json", "index.parquet", *SCORING_FILES)
_DERIVED = ("scores.parquet", "judge_inputs.parquet", "records.parquet", "metrics.json", "low_scores.json", "cost.json")
"""The order in which files follow from each other: the first that differs is the cause of the others."""


@dataclass
class Verification:
    """What a verification gave. True in a condition where nothing differs.

    `differences` are in the order in which a run is made: the first is the one to look at, as text a sentence. `same` are the derived
    files that came out equal. `sealed` are those that are not made of this folder alone (exports, the agreement of two judges), and are
    what the seal says.
    """

    differences: list[RunDifference]
    same: list[str] = field(default_factory=list)
    sealed: list[str] = field(default_factory=list)

    def __bool__(self) -> bool:
        return not self.differences


def verify_run(finished: FinishedRun) -> Verification:
    """Compare the inputs (configuration, prompts, cases, replies) with the seal; where none was changed, make every derived
    file again in a scratch folder, and compare it with the seal and the folder.

    Raises DataError where nothing can be made again: for a run that kept no replies and is as it was sealed.
    """
    with unchecked():  # what changed is to be described
        return _verified(finished)


def _verified(finished: FinishedRun) -> Verification:
    folder = finished.folder
    try:
        seal = open_seal(folder.seal)
    except ValueError as error:
        return Verification([RunDifference("seal.json", f"the seal itself was changed: {error}")])
    if seal is None:
        missing = RunDifference("seal.json", "missing: the run did not end, or the file was taken away")
        return Verification([missing])
    if changed_inputs := [*_input_differences(finished, seal)]:
        return Verification(changed_inputs)
    with tempfile.TemporaryDirectory() as scratch:
        remade = RunFolder(Path(scratch) / finished.run_id)
        try:
            _make_again(finished, seal, remade)
        except (RagpipeError, ValueError) as error:
            if not finished.config.keep_messages:
                return Verification(_differences_without_replies(finished, seal))
            return Verification([RunDifference("scores.parquet", f"cannot be made again: {error}")])
        result = _compare(folder, remade, seal)
    result.differences += journal_conflicts(folder, [int(number) for number in finished.manifest["iterations"]])
    return result


def _differences_without_replies(finished: FinishedRun, seal: Mapping[str, Any]) -> list[RunDifference]:
    result = _compare_with_seal(finished.folder, seal, remade=())
    if result.differences:
        return result.differences
    fix = (
        f"nothing seems changed: {len(result.sealed)} files and the inputs are as they were sealed; keep the replies of the "
        "next run"
    )
    expected = "true: its figures are made again from its replies"
    problem = Problem(str(finished.folder.root), "keep_messages", "false", expected, fix)
    raise DataError("the run cannot be verified: its replies were not kept", [problem])


def _compare_with_seal(folder: RunFolder, seal: Mapping[str, Any], *, remade: Collection[str]) -> Verification:
    """The files that were sealed and are not made again. One that is missing is no difference."""
    result = Verification([])
    for name, digest in seal["files"].items():
        path = folder.root / name
        if name in remade or name.startswith(_INPUTS) or not is_regular_file(path):
            continue
        if sha256_file(path) == digest:
            result.sealed.append(name)
        else:
            what = f"{CHANGED_BYTES} (it cannot be made again to name the place)"
            result.differences.append(RunDifference(name, what))
    return result


def _input_differences(finished: FinishedRun, seal: Mapping[str, Any]) -> Iterator[RunDifference]:
    yield from _manifest_differences(finished, seal)
    for name, digest in seal["files"].items():
        path = finished.folder.root / name
        is_reply = name.startswith("iteration-") and name.endswith("/judge_inputs.parquet")
        if not is_reply and not name.startswith(_INPUTS):
            continue
        if not path.is_file():
            yield RunDifference(name, "missing")
        elif sha256_file(path) != digest:
            is_price = name == "config.yaml" and not is_priced_as_sealed(finished.config, seal)
            yield RunDifference(name, CHANGED_BYTES + (": its prices are not those of cost.json" if is_price else ""))


def _manifest_differences(finished: FinishedRun, seal: Mapping[str, Any]) -> Iterator[RunDifference]:
    """The manifest against the seal, and its identity against that of the configuration and the templates in the folder."""
    manifest = finished.manifest
    frozen = {key: value for key, value in manifest.items() if key != "iterations"}
    for line in identity_differences(seal["manifest"], frozen):
        yield RunDifference("manifest.json", line)
    if run_id(manifest["identity"]) != manifest["run_id"]:
        yield RunDifference("manifest.json", "run_id is not the digest of its identity")
    for line in identity_differences(manifest["identity"], finished.identity()):
        key = line.partition(":")[0]
        if key != "ragpipe":
            of = "a metric" if ".source." in key else "the judge" if IMPLEMENTATION in key else ""
            yield RunDifference(f"the source of {of}" if of else "config.yaml or prompts", line)


def _make_again(finished: FinishedRun, seal: Mapping[str, Any], folder: RunFolder) -> None:
    """Make the run again in a scratch folder. A metric that failed on a case failed in the run, too, and is recorded there."""

    def spend(iteration: int) -> Usage:
        sealed: Mapping[str, Any] | None = seal["spent"].get(str(iteration))
        return Usage.from_json(sealed or read_json(finished.folder.iteration(iteration).cost)["spent"])

    spec = RunSpec(
        config=finished.config.model_copy(update={"on_metric_error": "record"}),
        source=RunSource(finished.folder, finished.manifest),
        identity=dict(finished.manifest["identity"]),
        folder=folder,
        made_from=finished.manifest,
        scoring_files=finished.scoring_files,
    )
    policy = VerifyPolicy(finished, fix=_FIX, spend=spend, rates=sealed_rates(finished.folder, seal))
    Evaluation(spec, policy, Console(out=io.StringIO(), err=io.StringIO())).run()


def _compare(folder: RunFolder, remade: RunFolder, seal: Mapping[str, Any]) -> Verification:
    result, names = Verification([]), set[str]()
    for path in derived_and_frozen(remade.root):
        names.add(name := path.relative_to(remade.root).as_posix())
        if name.startswith(_INPUTS):
            continue  # compared with the seal already
        difference = _file_difference(name, folder.root / name, path, seal["files"].get(name))
        if difference:
            result.differences.append(difference)
        else:
            result.same.append(name)
    others = _compare_with_seal(folder, seal, remade=names)
    order = {name: position for position, name in enumerate(_DERIVED)}
    differences = [*result.differences, *others.differences]
    differences.sort(key=lambda difference: order.get(difference.where.rpartition("/")[2], len(order)))
    return Verification(differences, result.same, others.sealed)


def _file_difference(name: str, path: Path, remade: Path, sealed: str | None) -> RunDifference | None:
    """A derived file as it is, against the file that was made again and the seal."""
    remade_digest = sha256_file(remade)
    if not is_regular_file(path):
        if sealed in (None, remade_digest):
            return None
        what = "does not come out again as it was (the file is missing, so the place is not known)"
        return RunDifference(name, what)
    digest = sha256_file(path)
    if digest == remade_digest:
        return None
    if difference := first_difference(path, remade):
        return RunDifference(name, difference)
    return None if digest == sealed else RunDifference(name, f"{CHANGED_BYTES}, though it says the same")

"""`task=verify`: is a run folder what it was, and do its figures follow from its cases and replies? Asks nobody."""

from __future__ import annotations

import io
import tempfile
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from ragpipe.core.errors import DataError, Problem, RagpipeError
from ragpipe.core.resources import code_digest
from ragpipe.core.validation import ConfigOrigins
from ragpipe.engine.case_sources import RunSource
from ragpipe.engine.evaluation import Evaluation
from ragpipe.engine.finished_run import FinishedRun, open_run
from ragpipe.engine.integrity import describe_changes
from ragpipe.engine.iteration_states import JUDGED
from ragpipe.engine.journal_conflicts import JournalConflict, journal_conflicts
from ragpipe.engine.judge_access import open_replay
from ragpipe.engine.run_identity import identity_differences, run_id
from ragpipe.engine.run_prices import changed_prices, made_with
from ragpipe.reports.console import Console
from ragpipe.schema.usage import Usage
from ragpipe.stages.seal_run import derived_and_frozen
from ragpipe.store.files.filesystem import is_regular_file
from ragpipe.store.run.file_difference import first_difference
from ragpipe.store.run.run_folder import RunFolder
from ragpipe.store.run.run_tables import read_json
from ragpipe.store.run.seals import open_seal, seal_file

DIFFERENT = 3
"""Exit code when something differs."""
FIX = "the run's own replies do not answer its own questions: judge_inputs.parquet, a prompt or a case is not the run's"


def validate(plain: Mapping[str, Any], origins: ConfigOrigins | None = None) -> FinishedRun:
    """The run as it stands. Raises ConfigError, DataError."""
    return open_run(plain, origins, allowed=(), task="verify")


def run(finished: FinishedRun, console: Console) -> int:
    """Print what differs, the first thing first. Returns 0 when nothing does, else 3."""
    found, same, held = verify(finished)
    for finding in found:
        console.say(f"differs  {finding}")
    for name in same:
        console.say(f"same     {name}")
    for name in held:
        console.say(f"sealed   {name}")
    made_by = finished.manifest.get("code")
    if found and made_by != code_digest():
        console.say(
            f"made by another state of ragpipe's code ({made_by or 'unknown'}, this is {code_digest()}): that alone may be why"
        )
    stopped = [number for number, state in finished.manifest["iterations"].items() if state == JUDGED]
    if found and stopped:
        console.say(
            f"a start of this run was stopped before its end (iteration {', '.join(stopped)} is judged, and not sealed): that "
            "alone may be why; start its command again"
        )
    if found:
        console.say(
            f"verify: {len(found)} {'differs' if len(found) == 1 else 'differ'}, {len(same)} the same; the first: {found[0]}"
        )
        return DIFFERENT
    more = f"; {len(held)} that are not made of it alone are as they were sealed" if held else ""
    console.say(
        f"verify: identical. {len(same)} files were made again from the frozen cases and the stored replies of {finished.run_id}{more}"
    )
    return 0


def verify(finished: FinishedRun) -> tuple[list[JournalConflict], list[str], list[str]]:
    """What differs, in the order in which a run is made; the derived files that came out the same; and those that are not
    made of this folder alone (exports, the agreement of two judges) and are what the seal says.

    Inputs (configuration, prompts, cases, replies) are held against the seal; when one was changed, nothing is made
    again from it. Then every derived file is made again in a scratch folder and held against the seal and the folder.
    Raises DataError where nothing can be made again: a resend, or a run that kept no replies and is as it was sealed.
    """
    folder = finished.folder
    try:
        seal = open_seal(folder.seal)
    except ValueError as error:
        return [JournalConflict("seal.json", f"the seal itself was changed: {error}")], [], []
    if seal is None:
        _refuse_resent(finished)
        return [JournalConflict("seal.json", "missing: the run did not end, or the file was taken away")], [], []
    if changed := [*_inputs(finished, seal)]:
        return changed, [], []
    with tempfile.TemporaryDirectory() as scratch:
        made = RunFolder(Path(scratch) / finished.run_id)
        try:
            _again(finished, seal, made)
        except (RagpipeError, ValueError) as error:
            if not finished.config.keep_messages:
                return _unkept(finished, seal), [], []
            return [JournalConflict("scores.parquet", f"cannot be made again: {error}")], [], []
        found, same, held = _compared(folder, made, seal)
    return [*found, *journal_conflicts(folder, [int(number) for number in finished.manifest["iterations"]])], same, held


def _refuse_resent(finished: FinishedRun) -> None:
    """Raises DataError for the folder of a resend: it holds replies beside replies, and no figure is made of them."""
    if finished.manifest["identity"].get("rejudge", {}).get("mode") == "resend":
        run = finished.manifest.get("source_run")
        raise DataError(
            "there is nothing to verify",
            [
                Problem(
                    str(finished.folder.root),
                    "run",
                    f"the questions of run {run}, sent again (rejudge.mode=resend)",
                    "an evaluated run: a resend has no cases and no scores of its own",
                    f"task=verify with the folder of run {run}",
                )
            ],
        )


def _unkept(finished: FinishedRun, seal: Mapping[str, Any]) -> list[JournalConflict]:
    """What of a run without replies is not as it was sealed. Raises DataError where all of it is: that proves less."""
    found, held = _held(finished.folder, seal, made=())
    if found:
        return found
    raise DataError(
        "the run cannot be verified: its replies were not kept",
        [
            Problem(
                str(finished.folder.root),
                "keep_messages",
                "false",
                "true: its figures are made again from its replies",
                f"nothing seems changed: {len(held)} files and the inputs are as they were sealed; keep the replies of the next run",
            )
        ],
    )


def _held(
    folder: RunFolder, seal: Mapping[str, Any], *, made: Collection[str]
) -> tuple[list[JournalConflict], list[str]]:
    """The files that were sealed and not made again, against their seal: what differs, and what does not. One that is
    not there any more says nothing wrong."""
    found, same = [], []
    for name, digest in seal["files"].items():
        path = folder.root / name
        if name in made or name.startswith(_INPUTS) or not is_regular_file(path):
            continue
        if seal_file(path) == digest:
            same.append(name)
        else:
            found.append(
                JournalConflict(name, "its bytes are not what they were (it cannot be made again to name the place)")
            )
    return found, same


def _inputs(finished: FinishedRun, seal: Mapping[str, Any]) -> Iterator[JournalConflict]:
    """Changes in what the figures rest on."""
    folder, manifest = finished.folder, finished.manifest
    frozen = {key: value for key, value in manifest.items() if key != "iterations"}
    for line in identity_differences(seal["manifest"], frozen):
        yield JournalConflict("manifest.json", line)
    if run_id(manifest["identity"]) != manifest["run_id"]:
        yield JournalConflict("manifest.json", "run_id is not the digest of its identity")
    for line in identity_differences(manifest["identity"], finished.identity()):
        name = line.partition(":")[0]
        if name != "ragpipe":
            yield JournalConflict("the source of a metric" if ".source." in name else "config.yaml or prompts", line)
    for name, digest in seal["files"].items():
        if name in ("config.yaml", "index.json") or name.startswith("prompts/"):
            if not (folder.root / name).is_file():
                yield JournalConflict(name, "missing")
            elif seal_file(folder.root / name) != digest:
                prices = changed_prices(finished.config, seal) if name == "config.yaml" else []
                told = f": its prices are not those of cost.json ({'; '.join(prices)})" if prices else ""
                yield JournalConflict(name, "its bytes are not what they were" + told)
    for name, table in seal["tables"].items():
        path = folder.root / name
        if not path.is_file():
            yield JournalConflict(name, "missing")
        elif seal_file(path) != table["sha256"]:
            yield JournalConflict(name, describe_changes(path, table))


def _again(finished: FinishedRun, seal: Mapping[str, Any], made: RunFolder) -> None:
    """The run anew, in a scratch folder. A metric that failed on a case failed in the run, too: that is recorded there."""
    config = finished.config.model_copy(update={"on_metric_error": "record"})

    def spent(number: int) -> Usage:
        sealed: Mapping[str, Any] | None = seal["spent"].get(str(number))
        return Usage.from_json(sealed or read_json(finished.folder.iteration(number).cost)["spent"])

    quiet = Console(out=io.StringIO(), err=io.StringIO())
    Evaluation(
        config,
        quiet,
        RunSource(finished.folder, finished.manifest),
        dict(finished.manifest["identity"]),
        folder=made,
        open_session=lambda: open_replay(config, finished.replies(), fix=FIX),
        plan=False,
        asks="nobody",
        made_from=finished.manifest,
        spent=spent,
        prices=made_with(finished.folder, seal),
    ).evaluate()


def _compared(
    folder: RunFolder, made: RunFolder, seal: Mapping[str, Any]
) -> tuple[list[JournalConflict], list[str], list[str]]:
    found, same, names = [], [], set[str]()
    sealed = {**seal["files"], **{name: table["sha256"] for name, table in seal["tables"].items()}}
    for path in derived_and_frozen(made.root):
        names.add(name := path.relative_to(made.root).as_posix())
        if name.startswith(_INPUTS):
            continue  # held against the seal already
        finding = _one(name, folder.root / name, path, sealed.get(name))
        if finding:
            found.append(finding)
        else:
            same.append(name)
    others, held = _held(folder, seal, made=names)
    found += others
    order = {name: place for place, name in enumerate(_MADE)}
    found.sort(key=lambda finding: order.get(finding.where.rpartition("/")[2], len(order)))
    return found, same, held


_INPUTS = ("config.yaml", "prompts/", "samples.parquet", "outputs.parquet", "index.json")
_MADE = ("scores.parquet", "judge_inputs.parquet", "records.parquet", "metrics.json", "low_scores.json", "cost.json")
"""The order in which files follow from each other: the first that differs is the cause of the others."""


def _one(name: str, there: Path, made: Path, sealed: str | None) -> JournalConflict | None:
    """A derived file as it stands, as it comes out now, and as it was. A file that was deleted is only made again.

    Other bytes with the same content are no difference where the file is as it was sealed: another version of a library
    writes a table otherwise.
    """
    comes_out = seal_file(made)
    if not is_regular_file(there):
        if sealed in (None, comes_out):
            return None
        return JournalConflict(
            name, "does not come out again as it was (the file is missing, so the place is not known)"
        )
    stands = seal_file(there)
    if stands == comes_out:
        return None
    if difference := first_difference(there, made):
        return JournalConflict(name, difference)
    return (
        None if stands == sealed else JournalConflict(name, "its bytes are not what they were, though it says the same")
    )

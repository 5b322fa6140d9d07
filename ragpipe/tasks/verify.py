"""`task=verify`: is a run folder what it was, and do its figures follow from its cases and replies? Asks nobody."""

from __future__ import annotations

import io
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ragpipe.errors import RagpipeError
from ragpipe.reports.console import Console
from ragpipe.resources import code_digest
from ragpipe.stages.seal import derived_and_frozen
from ragpipe.store.difference import first_difference, named_row
from ragpipe.store.folder import RunFolder
from ragpipe.store.seal import changed_cells, open_seal, seal_file
from ragpipe.tasks.doors import replaying
from ragpipe.tasks.evaluation import Evaluation
from ragpipe.tasks.finished import Finished, open_finished
from ragpipe.tasks.identity import differences, run_id
from ragpipe.tasks.inputs import RunInputs
from ragpipe.tasks.prices import changed_price
from ragpipe.validation import Origins

DIFFERENT = 3
"""Exit code when something differs."""
MEND = (
    "the run's own replies do not answer its own questions: judge_inputs.parquet, a prompt or a case is not the run's"
)
_SHOWN_ROWS = 3


@dataclass(frozen=True)
class Finding:
    """One file that is not what it was: `where` is its path in the run folder, `what` says where and how it differs."""

    where: str
    what: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what}"


def validate(plain: Mapping[str, Any], origins: Origins | None = None) -> Finished:
    """The run as it stands. Raises ConfigError, DataError."""
    return open_finished(plain, origins, allowed=(), task="verify")


def run(finished: Finished, console: Console) -> int:
    """Print what differs, the first thing first. Returns 0 when nothing does, else 3."""
    found, same = verify(finished)
    for finding in found:
        console.say(f"differs  {finding}")
    for name in same:
        console.say(f"same     {name}")
    made_by = finished.manifest.get("code")
    if found and made_by != code_digest():
        console.say(
            f"made by another state of ragpipe's code ({made_by or 'unknown'}, this is {code_digest()}): that alone may be why"
        )
    if found:
        console.say(
            f"verify: {len(found)} {'differs' if len(found) == 1 else 'differ'}, {len(same)} the same; the first: {found[0]}"
        )
        return DIFFERENT
    console.say(
        f"verify: identical. {len(same)} files were made again from the frozen cases and the stored replies of {finished.run_id}"
    )
    return 0


def verify(finished: Finished) -> tuple[list[Finding], list[str]]:
    """What differs, in the order in which a run is made, and the derived files that came out the same.

    Inputs (configuration, prompts, cases, replies) are held against the seal; when one was changed, nothing is made
    again from it. Then every derived file is made again in a scratch folder and held against the seal and the folder.
    """
    folder = finished.folder
    try:
        seal = open_seal(folder.seal)
    except ValueError as error:
        return [Finding("seal.json", f"the seal itself was changed: {error}")], []
    if seal is None:
        return [Finding("seal.json", "missing: the run did not end, or the file was taken away")], []
    if changed := [*_inputs(finished, seal)]:
        return changed, []
    with tempfile.TemporaryDirectory() as scratch:
        made = RunFolder(Path(scratch) / finished.run_id)
        try:
            _again(finished, seal, made)
        except (RagpipeError, ValueError) as error:
            return [Finding("scores.parquet", f"cannot be made again: {error}")], []
        return _compared(folder, made, seal)


def _inputs(finished: Finished, seal: Mapping[str, Any]) -> Iterator[Finding]:
    """Changes in what the figures rest on."""
    folder, manifest = finished.folder, finished.manifest
    frozen = {key: value for key, value in manifest.items() if key != "iterations"}
    for line in differences(seal["manifest"], frozen):
        yield Finding("manifest.json", line)
    if run_id(manifest["identity"]) != manifest["run_id"]:
        yield Finding("manifest.json", "run_id is not the digest of its identity")
    for line in differences(manifest["identity"], finished.identity()):
        name = line.partition(":")[0]
        if name != "ragpipe":
            yield Finding("config.yaml or prompts", line)
    for name, digest in seal["files"].items():
        if name in ("config.yaml", "index.json") or name.startswith("prompts/"):
            if not (folder.root / name).is_file():
                yield Finding(name, "missing")
            elif seal_file(folder.root / name) != digest:
                price = changed_price(finished) if name == "config.yaml" else None
                yield Finding(name, "its bytes are not what they were" + (f": {price}" if price else ""))
    for name, sealed in seal["tables"].items():
        path = folder.root / name
        if not path.is_file():
            yield Finding(name, "missing")
        elif seal_file(path) != sealed["sha256"]:
            yield Finding(name, _changed(path, sealed))


def _changed(path: Path, sealed: Mapping[str, Any]) -> str:
    """Which cells of a table were changed, in words."""
    import pyarrow as pa

    try:
        rows, columns = changed_cells(path, sealed)
        shown = ", ".join(named_row(path, row) for row in rows[:_SHOWN_ROWS])
    except (pa.ArrowException, OSError) as error:
        return f"no readable table any more ({str(error)[:200]})"
    if not rows and not columns:
        return "its bytes are not what they were (every cell still says the same)"
    more = f" and {len(rows) - _SHOWN_ROWS:,} more rows" if len(rows) > _SHOWN_ROWS else ""
    return f"{', '.join(columns)} changed in {shown or 'its schema'}{more}"


def _again(finished: Finished, seal: Mapping[str, Any], made: RunFolder) -> None:
    quiet = Console(out=io.StringIO(), err=io.StringIO())
    Evaluation(
        finished.config, quiet, RunInputs(finished.folder, finished.manifest), dict(finished.manifest["identity"]),
        folder=made, door=lambda: replaying(finished.config, finished.replies(), mend=MEND), plan=False,
        made_from=finished.manifest, spent=lambda number: seal["spent"][str(number)],
    ).evaluate()  # fmt: skip


def _compared(folder: RunFolder, made: RunFolder, seal: Mapping[str, Any]) -> tuple[list[Finding], list[str]]:
    found, same = [], []
    sealed = {**seal["files"], **{name: table["sha256"] for name, table in seal["tables"].items()}}
    for path in derived_and_frozen(made.root):
        name = path.relative_to(made.root).as_posix()
        if name.startswith(_INPUTS):
            continue  # held against the seal already
        finding = _one(name, folder.root / name, path, sealed.get(name))
        if finding:
            found.append(finding)
        else:
            same.append(name)
    order = {name: place for place, name in enumerate(_MADE)}
    found.sort(key=lambda finding: order.get(finding.where.rpartition("/")[2], len(order)))
    return found, same


_INPUTS = ("config.yaml", "prompts/", "samples.parquet", "outputs.parquet", "index.json")
_MADE = ("scores.parquet", "judge_inputs.parquet", "records.parquet", "metrics.json", "low_scores.json", "cost.json")
"""The order in which files follow from each other: the first that differs is the cause of the others."""


def _one(name: str, there: Path, made: Path, sealed: str | None) -> Finding | None:
    """A derived file as it stands, as it comes out now, and as it was. A file that was deleted is only made again.

    Other bytes with the same content are no difference where the file is as it was sealed: another version of a library
    writes a table otherwise.
    """
    comes_out = seal_file(made)
    if not there.is_file() or there.is_symlink():
        if sealed in (None, comes_out):
            return None
        return Finding(name, "does not come out again as it was (the file is missing, so the place is not known)")
    stands = seal_file(there)
    if stands == comes_out:
        return None
    if difference := first_difference(there, made):
        return Finding(name, difference)
    return None if stands == sealed else Finding(name, "its bytes are not what they were, though it says the same")

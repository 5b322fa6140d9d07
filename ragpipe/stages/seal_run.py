"""Stage `seal`: writes down what every file of a run is, so that `task=verify` finds what was changed afterwards."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ragpipe.stages.combine_iterations import scored_iterations
from ragpipe.store.files.filesystem import is_regular_file
from ragpipe.store.files.write_if_changed import json_unless_same
from ragpipe.store.run.run_folder import RunFolder
from ragpipe.store.run.seals import closed_seal, open_seal, seal_file, seal_table

VOLATILE = frozenset({"manifest.json", "seal.json", "outputs.journal.jsonl", "journal.jsonl", ".progress.json"})
"""Files that say how a run went, not what it found."""
_TABLES = frozenset({"samples.parquet", "outputs.parquet", "judge_inputs.parquet"})
"""Tables that figures rest on: sealed row by row."""


def seal_run(
    folder: RunFolder,
    manifest: Mapping[str, Any],
    *,
    iterations: Collection[int],
    inputs: bool,
    final: bool,
    written: Collection[str] = (),
) -> None:
    """Write `seal.json`. `iterations` were judged or scored in this start; `inputs` says whether the frozen cases are new;
    `final` whether they were put together anew; `written` names other files that it wrote: reports, exports, and
    config.yaml (a report option changes it, and no number).

    What this start did not make keeps the seal it has: starting a finished run again never blesses a changed file.
    """
    before = _before(folder)
    files, tables = dict[str, str](), dict[str, Any]()
    spent, prices = dict(before.get("spent", {})), dict(before.get("prices", {}))
    for path in derived_and_frozen(folder.root):
        name = path.relative_to(folder.root).as_posix()
        made = name in written or _made(name, iterations, inputs, final)
        old = before.get("tables", {}).get(name) or before.get("files", {}).get(name)
        if old is not None and not made:
            (tables if isinstance(old, dict) else files)[name] = old
        elif path.name in _TABLES and not name.startswith("export/"):
            tables[name] = seal_table(path, old if isinstance(old, dict) else None)
        else:
            files[name] = seal_file(path)
    for number in scored_iterations(folder):
        if number not in iterations and str(number) in spent:
            continue  # also one that an earlier start scored, and did not live to seal
        bill = json.loads(folder.iteration(number).cost.read_text(encoding="utf-8"))
        spent[str(number)], prices[str(number)] = bill["spent"], bill["prices"]
    frozen = {key: value for key, value in manifest.items() if key != "iterations"}
    json_unless_same(
        folder.seal,
        closed_seal({"manifest": frozen, "files": files, "tables": tables, "spent": spent, "prices": prices}),
    )


def seal_added(folder: RunFolder, paths: Iterable[Path]) -> None:
    """Seal files that a task wrote into a run that has ended: exports, and what holds it against another run.

    A run without a seal, or with a damaged one, gets none by this.
    """
    if before := _before(folder):
        names = {path.relative_to(folder.root).as_posix(): seal_file(path) for path in paths}
        _write(folder, before, files={**before["files"], **names}, tables=before["tables"])


def unseal(folder: RunFolder, name: str) -> None:
    """Take a file, or with a `/` at the end a folder, out of the seal: a start is about to change it, and may be killed
    before it seals it anew."""

    def stays(key: str) -> bool:
        return not (key == name or (name.endswith("/") and key.startswith(name)))

    if before := _before(folder):
        files, tables = ({k: v for k, v in before[part].items() if stays(k)} for part in ("files", "tables"))
        _write(folder, before, files=files, tables=tables)


def _write(folder: RunFolder, before: Mapping[str, Any], **parts: Any) -> None:
    for (
        part,
        entries,
    ) in parts.items():  # in the order of `derived_and_frozen`: a seal of the same files is the same text
        parts[part] = dict(sorted(entries.items(), key=lambda entry: Path(entry[0])))
    content = {key: before[key] for key in ("manifest", "files", "tables", "spent", "prices")} | parts
    json_unless_same(folder.seal, closed_seal(content))


def derived_and_frozen(root: Path) -> Iterator[Path]:
    """Every file of a run folder but the volatile ones, in a fixed order. Links are passed over."""
    for path in sorted(root.rglob("*")):
        if is_regular_file(path) and path.name not in VOLATILE and not path.name.startswith("."):
            yield path


def damaged_seal_warning(folder: RunFolder) -> str | None:
    """What to say of a seal that was changed: the next one is made of the files as they are then. None for a whole seal and
    where there is none."""
    try:
        open_seal(folder.seal)
    except ValueError as error:
        return (
            f"{folder.seal}: damaged ({error}). What the files of this run were is no longer known: the seal is made anew of "
            "them as they are now. To be sure of the figures, evaluate into another folder (name=...): stored replies are used"
        )
    return None


def _before(folder: RunFolder) -> dict[str, Any]:
    try:
        return open_seal(folder.seal) or {}
    except ValueError:
        return {}


def _made(name: str, iterations: Collection[int], inputs: bool, final: bool) -> bool:
    """Whether this start has written the file, or may have."""
    top = name.partition("/")[0]
    if top.startswith("iteration-"):
        return top in {f"iteration-{number}" for number in iterations}
    if top in ("final", "gates.json"):
        return final
    if top in ("samples.parquet", "outputs.parquet", "index.json", "config.yaml", "prompts"):
        return inputs
    return False  # a report or an export of an earlier start, or what holds the run against another one

"""Stage `seal`: writes the digests of all files of a run, so that `task=verify` finds what was changed afterwards."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ragpipe.core.digest import sha256_file
from ragpipe.runs.combine_iterations import scored_iterations
from ragpipe.store.files import is_regular_file, json_unless_same
from ragpipe.store.run_folder import RunFolder
from ragpipe.store.seals import closed_seal, open_seal

VOLATILE = frozenset({"manifest.json", "seal.json", "outputs.journal.jsonl", "journal.jsonl", ".progress.json"})
"""Files that say how a run went, not what its results are."""
SCORING_FILES = ("baseline.parquet", "calibration.json")
"""Copies of what scoring reads of other runs and of people's labels."""
FROZEN = ("samples.parquet", "outputs.parquet", "index.json", "index.parquet", *SCORING_FILES)
"""What an evaluation rests on."""


def seal_run(
    folder: RunFolder,
    manifest: Mapping[str, Any],
    *,
    iterations: Collection[int],
    inputs_are_new: bool,
    combined: bool,
    written: Collection[str] = (),
) -> None:
    """Write `seal.json`. What this start did not make keeps its seal: starting a finished run again never seals a changed file.
    It made the `iterations` that it judged or scored, the frozen cases where `inputs_are_new`, what `combined` iterations give,
    and `written`: reports, exports, and config.yaml (a report option changes it, and no number)."""
    previous = _readable_seal(folder)
    files: dict[str, str] = {}
    for path in derived_and_frozen(folder.root):
        name = path.relative_to(folder.root).as_posix()
        is_new = name in written or _is_of_this_start(name, iterations, inputs_are_new, combined)
        before = previous.get("files", {}).get(name)
        files[name] = sha256_file(path) if before is None or is_new else before
    frozen = {key: value for key, value in manifest.items() if key != "iterations"}
    content = {"manifest": frozen, "files": files, **_sealed_costs(folder, previous, iterations)}
    json_unless_same(folder.seal, closed_seal(content))


def _sealed_costs(folder: RunFolder, previous: Mapping[str, Any], iterations: Collection[int]) -> dict[str, Any]:
    """What was spent and the prices by iteration: as sealed before, but for those that are not, or of this start."""
    spent, prices = dict(previous.get("spent", {})), dict(previous.get("prices", {}))
    for number in scored_iterations(folder):
        if number in iterations or str(number) not in spent:
            cost = json.loads(folder.iteration(number).cost.read_text(encoding="utf-8"))
            spent[str(number)], prices[str(number)] = cost["spent"], cost["prices"]
    return {"spent": spent, "prices": prices}


def seal_added(folder: RunFolder, paths: Iterable[Path]) -> None:
    """Seal files that a task wrote into a run that has ended: exports, and comparisons with another run.

    A run without a seal, or with a damaged one, stays so.
    """
    if before := _readable_seal(folder):
        names = {path.relative_to(folder.root).as_posix(): sha256_file(path) for path in paths}
        _write(folder, before, {**before["files"], **names})


def unseal(folder: RunFolder, *names: str) -> None:
    """Remove files, or with a `/` at the end folders, from the seal: a start is about to change them, and may be killed before
    it seals them again."""

    def stays(key: str) -> bool:
        return not any(key == name or (name.endswith("/") and key.startswith(name)) for name in names)

    if before := _readable_seal(folder):
        _write(folder, before, {name: digest for name, digest in before["files"].items() if stays(name)})


def _write(folder: RunFolder, before: Mapping[str, Any], files: Mapping[str, str]) -> None:
    # in the order of `derived_and_frozen`: a seal of the same files is the same text
    in_order = dict(sorted(files.items(), key=lambda entry: Path(entry[0])))
    content = {key: before[key] for key in ("manifest", "files", "spent", "prices")} | {"files": in_order}
    json_unless_same(folder.seal, closed_seal(content))


def derived_and_frozen(root: Path) -> Iterator[Path]:
    """Every file of a run folder except the volatile ones, in a fixed order. Links are skipped."""
    for path in sorted(root.rglob("*")):
        if is_regular_file(path) and path.name not in VOLATILE and not path.name.startswith("."):
            yield path


def remove_damaged_seal(folder: RunFolder) -> str | None:
    """Remove a seal that was changed: the next one is made of the files as they are then. Returns a warning that says so; None for
    a good seal and where there is none. Nothing may be read by a damaged seal."""
    try:
        open_seal(folder.seal)
    except ValueError as error:
        folder.seal.unlink()
        return (
            f"{folder.seal}: damaged ({error}). What the files of this run were is no longer known: the seal is made anew of "
            "them as they are now. To be sure of the figures, evaluate into another folder (name=...): stored replies are used"
        )
    return None


def _readable_seal(folder: RunFolder) -> dict[str, Any]:
    try:
        return open_seal(folder.seal) or {}
    except ValueError:
        return {}


def _is_of_this_start(name: str, iterations: Collection[int], inputs_are_new: bool, combined: bool) -> bool:
    """Whether this start wrote the file, or may have."""
    top = name.partition("/")[0]
    if top.startswith("iteration-"):
        return top in {f"iteration-{number}" for number in iterations}
    if top in ("final", "gates.json"):
        return combined
    if top in (*FROZEN, "config.yaml", "prompts"):
        return inputs_are_new
    return False  # a report or an export of an earlier start, or a comparison with another run

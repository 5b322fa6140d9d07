"""`manifest.json`: what a run is, with what it was made, how far it is; beside it `config.yaml`, the prompts, and the seal."""

from __future__ import annotations

import json
import platform
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from ragpipe.core.digest import sha256_file
from ragpipe.core.errors import DataError, Problem, RagpipeError
from ragpipe.core.resources import code_digest
from ragpipe.core.version import FORMAT, __version__
from ragpipe.core.yaml_files import FastDumper
from ragpipe.metrics.from_config import class_path
from ragpipe.runs.settings import RunConfig
from ragpipe.store.call_database import StorePlace, call_database
from ragpipe.store.files import is_regular_file, json_unless_same, write_unless_same
from ragpipe.store.run_folder import RUN_ID, RunFolder, make_folder, manifest_of
from ragpipe.store.run_tables import fault, run_file_error
from ragpipe.store.seals import closed_seal, open_seal

TIMES = ("created_at", "ended_at", "duration_s")
"""When a run was started, when it was scored last, and the seconds of that start with the judging of the starts before."""
_PACKAGES = ("aiohttp", "hydra-core", "litellm", "numpy", "omegaconf", "pyarrow", "pydantic")


def read_manifest(folder: RunFolder) -> dict[str, Any]:
    """The manifest of a run folder, empty when there is none. Raises DataError for a broken manifest, FormatMismatch."""
    return manifest_of(folder.manifest) if folder.manifest.is_file() else {}


_SHAPE = {
    "run_id": str,
    "data": {"name": str, "digest": str, "tables": str},
    "iterations": dict,
    "identity": {"metrics": dict, "judge_identity": dict},
}
"""The parts of a manifest that the tasks read."""


def checked_manifest(folder: RunFolder, run_id: str | None = None) -> dict[str, Any]:
    """The manifest of a run, with every part that the tasks read. With `run_id` it must be that run's.

    Raises DataError: the folder may come from anybody, be half a copy, or damaged.
    """
    manifest = read_manifest(folder)
    if found := _first_fault(manifest, run_id):
        key, what = found
        raise run_file_error(folder.manifest, what, "what ragpipe wrote", key=key)
    return manifest


def _first_fault(manifest: Mapping[str, Any], run_id: str | None) -> tuple[str, str] | None:
    """(key, what is wrong with it) of the first part that is not as a run writes it; None where all parts are."""
    if found := fault(manifest, _SHAPE, ""):
        return "manifest", found
    if not RUN_ID.fullmatch(manifest["run_id"]):
        return "run_id", "no run's name"
    if not all(number.isdecimal() and isinstance(state, str) for number, state in manifest["iterations"].items()):
        return "iterations", "no states by number"
    if run_id is not None and run_id != manifest["run_id"]:
        return "run_id", f"{manifest['run_id']}, and not {run_id}"
    return None


def new_manifest(
    config: RunConfig, identity: Mapping[str, Any], *, run_id: str, data: Mapping[str, Any], source_run: str | None = None
) -> dict[str, Any]:
    """The manifest of a run of which nothing is judged yet. `data` is name, digest and files of the data, `source_run` the id
    of the run whose frozen cases these are; None for a data set."""
    return {
        "format": FORMAT,
        "run_id": run_id,
        "source_run": source_run,
        "name": config.name,
        "created_at": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "ragpipe": __version__,
        "code": code_digest(),
        "versions": {"python": platform.python_version(), **{name: _version(name) for name in _PACKAGES}},
        "data": dict(data),
        "prompts": {
            **{p.signature: p.sha256 for m in config.metrics.values() for p in m.prompts().values()},
            **{e.signature: e.sha256 for m in config.metrics.values() for e in m.graded_examples.values()},
        },
        "identity": dict(identity),
        "iterations": {},
    }


def write_manifest(folder: RunFolder, manifest: Mapping[str, Any]) -> None:
    """Write the manifest, unless the file has this content already."""
    json_unless_same(folder.manifest, manifest)


def write_config(folder: RunFolder, config: RunConfig) -> None:
    """Write `config.yaml`, unless it has this content already. A changed file is sealed at the end of this start."""
    text = config_text(config)
    if folder.config.is_file() and folder.config.read_bytes() != text.encode("utf-8", "backslashreplace"):
        unseal(folder, "config.yaml")
    write_unless_same(folder.config, text)


def check_formats(folder: RunFolder, store: StorePlace) -> None:
    """Raises FormatMismatch when the folder of a run or the call store has another format: before either is touched."""
    read_manifest(folder)
    call_database(store).check()


def previous_manifest(folder: RunFolder, *, or_itself: bool = False) -> dict[str, Any]:
    """The manifest of the newest run of the same name, of another run but for `or_itself`; empty when there is none that can be read."""
    try:
        previous = RunFolder.find(folder.latest)
        if previous.root.name == folder.root.name and not or_itself:
            return {}
        return checked_manifest(previous, previous.root.name)  # its id becomes a path beside this run's
    except RagpipeError:
        return {}


def rewritten_prompt_warnings(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """A warning per template or file of graded examples that kept its version's name and changed its text between two runs, with
    both hashes."""
    known = {signature.partition("@")[0]: sha for signature, sha in before.get("prompts", {}).items()}
    warnings = []
    for signature, sha in now["prompts"].items():
        name = signature.partition("@")[0]
        if known.get(name, sha) != sha:
            warnings.append(
                f"the {'file' if '.examples.' in name else 'template'} {name} has another text than in run {before['run_id']}: {known[name][:12]} -> {sha[:12]}; "
                "a version that has been used should keep its text: save the edit as a new version"
            )
    return warnings


def copy_prompts(config: RunConfig, folder: Path) -> None:
    """Copy the templates and graded examples that this run uses, byte for byte, with what they include. Links are not
    followed, and nothing is written outside the folder. Raises OutputError."""
    for metric in config.metrics.values():
        texts = dict[str, str]()
        for prompt in metric.prompts().values():
            texts |= prompt.sources
        for examples in metric.graded_examples.values():
            texts |= examples.sources
        for name, text in texts.items():
            for parent in reversed((folder / name).relative_to(folder).parents):
                make_folder(folder / parent)
            write_unless_same(folder / name, text)


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "absent"


def config_sections(config: RunConfig) -> dict[str, Any]:
    """The composed configuration as plain data. It has names of environment variables, no values."""
    plain: dict[str, Any] = config.model_dump(mode="json", by_alias=True, exclude={"metrics"})
    plain["metrics"] = {}
    for name, metric in config.metrics.items():
        kind, prompts = type(metric), metric.prompts()
        section: dict[str, Any] = {"class": class_path(kind)}
        if prompts:
            section["prompts"] = {step: prompt.version for step, prompt in prompts.items()}
        if label := metric.label_question:
            section["label"] = label.model_dump(mode="json")
        plain["metrics"][name] = section | metric.model_dump(mode="json", exclude={"name", *metric.step_names()})
    return plain


def config_text(config: RunConfig) -> str:
    """The composed configuration as YAML: what `config.yaml` holds."""
    import yaml

    head = "# The configuration of this run, composed and checked. Made by ragpipe; editing it changes nothing.\n"
    text: str = yaml.dump(config_sections(config), Dumper=FastDumper, sort_keys=False, allow_unicode=True, width=120)
    return head + text


JUDGED = "judged"
"""Judged, but not scored and sealed yet."""


INCOMPLETE = "incomplete"
"""Judged, but some calls failed for a transient reason."""


COMPLETE = "complete"
"""Judged, scored and sealed."""


JUDGING_DONE = (JUDGED, COMPLETE)
"""The states in which no question of an iteration is left to ask."""


def all_in_state(states: Mapping[str, str], iterations: Iterable[int], allowed: Collection[str]) -> bool:
    """Whether each of these iterations is in one of the allowed states. `states` is by number, as in the manifest."""
    return all(states.get(str(number)) in allowed for number in iterations)


def scored_iterations(folder: RunFolder, *, or_error: str = "") -> list[int]:
    """The iterations that are scored, in order: those that can be combined. With `or_error`, a title, raises DataError
    where there is none."""
    numbered = ((number, folder.iteration(number)) for number in folder.iterations())
    scored = [
        number
        for number, iteration in numbered
        if all(path.is_file() for path in (iteration.records, iteration.metrics, iteration.cost))
    ]
    if or_error and not scored:
        found, fix = "no iteration that is scored", "start its command again"
        raise DataError(or_error, [Problem(str(folder.root), "run", found, "a finished run", fix)])
    return scored


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

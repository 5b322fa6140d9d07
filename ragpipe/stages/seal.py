"""Stage `seal`: writes down what every file of a run is, so that `task=verify` finds what was changed afterwards."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from ragpipe.stages.final import scored_iterations
from ragpipe.store.folder import RunFolder
from ragpipe.store.seal import closed, open_seal, seal_file, seal_table
from ragpipe.store.unchanged import json_unless_same

VOLATILE = frozenset({"manifest.json", "seal.json", "outputs.journal.jsonl", "journal.jsonl", ".progress.json"})
"""Files that say how a run went, not what it found."""
COMPARED = frozenset({"agreement.json", "agreement.md"})
"""Files about two runs: they cannot be made again from one folder."""
_TABLES = frozenset({"samples.parquet", "outputs.parquet", "judge_inputs.parquet"})
"""Tables that figures rest on: sealed row by row."""


def run_seal(
    folder: RunFolder, manifest: Mapping[str, Any], *, iterations: Collection[int], inputs: bool, final: bool,
    written: Collection[str] = (),
) -> None:  # fmt: skip
    """Write `seal.json`. `iterations` were judged or scored in this start; `inputs` says whether the frozen cases are new;
    `final` whether they were put together anew; `written` names other files that it wrote (a report option changes
    config.yaml, and no number).

    What this start did not make keeps the seal it has: starting a finished run again never blesses a changed file.
    """
    before = _before(folder)
    files, tables = dict[str, str](), dict[str, Any]()
    spent = dict(before.get("spent", {}))
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
        spent[str(number)] = json.loads(folder.iteration(number).cost.read_text(encoding="utf-8"))["spent"]
    frozen = {key: value for key, value in manifest.items() if key != "iterations"}
    json_unless_same(
        folder.seal, closed({"manifest": frozen, "files": files, "tables": tables, "spent": spent})
    )  # fmt: skip


def derived_and_frozen(root: Path) -> Iterator[Path]:
    """Every file of a run folder but the volatile ones, in a fixed order. Links are passed over."""
    for path in sorted(root.rglob("*")):
        if (
            path.is_file()
            and not path.is_symlink()
            and path.name not in VOLATILE | COMPARED
            and not path.name.startswith(".")
        ):
            yield path


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
    return True  # reports and exports: made at every start

"""What two runs differ in beside their answers: the parts that a comparison must share, read from their manifests.

And whether the judge drifted between the judging of two runs, by its drift file beside the call store: one per judge identity.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from ragpipe.core.digest import changed_keys, sha256, short_value
from ragpipe.core.errors import DataError, Problem
from ragpipe.core.strict_json import InvalidJson, strict_loads
from ragpipe.core.version import FORMAT
from ragpipe.core.yaml_files import MAX_BYTES, FastLoader, named_text
from ragpipe.store.files import json_unless_same
from ragpipe.store.run_folder import RunFolder

MUST_MATCH = ("data", "judge", "embedder", "prompts", "parser", "metrics")
"""Parts that are refused where they differ, unless they are accepted."""


class ChangedKey(NamedTuple):
    """One key that differs: `part` says what it belongs to, `base` and `candidate` are its values as short text."""

    part: str
    key: str
    base: str
    candidate: str

    def line(self) -> str:
        """`judge: threshold: 0.33 -> 0.5`."""
        return f"{self.key}: {self.base} -> {self.candidate}"


def setting_differences(base: Mapping[str, Any], candidate: Mapping[str, Any]) -> list[ChangedKey]:
    """All that differs in how two runs were judged and scored, for the metrics that both have, by their manifests.

    Parts: judge, embedder, prompts, parser, metrics; and, never refused, answers (the system) and scoring.
    """
    before, after = base["identity"], candidate["identity"]
    parts = (
        ("judge", "judge", "judge_identity"),
        ("embedder", "embedder", "embedder"),
        ("parser", "parser", "parser"),
        ("answers", "system", "system"),
        ("scoring", "scoring", "scoring"),
    )
    differences: list[ChangedKey] = []
    for part, prefix, key in parts:
        differences += _changed(part, prefix, before.get(key), after.get(key))
    for name, metric in before["metrics"].items():
        if name in after["metrics"]:
            differences += _metric(name, metric, after["metrics"][name], base, candidate)
    return differences


def refused_parts(differences: Collection[ChangedKey], accept: Collection[str]) -> list[str]:
    """The parts that differ and are not accepted, in the order of `MUST_MATCH`."""
    parts = {difference.part for difference in differences}
    return [part for part in MUST_MATCH if part in parts and part not in accept]


def _metric(
    name: str, before: Mapping[str, Any], after: Mapping[str, Any], base: Mapping[str, Any], candidate: Mapping[str, Any]
) -> Iterator[ChangedKey]:
    for step in sorted({*before["prompts"], *after["prompts"]}):
        old, new = before["prompts"].get(step), after["prompts"].get(step)
        if old != new:
            yield ChangedKey("prompts", f"{name}.{step}", _prompt(old, base), _prompt(new, candidate))
    rest = [{key: value for key, value in metric.items() if key != "prompts"} for metric in (before, after)]
    yield from _changed("metrics", name, *rest)


def _prompt(sha: str | None, manifest: Mapping[str, Any]) -> str:
    """`faithfulness/verify.v2@854b67e0` by the hash of the template's text."""
    versions = {sha: signature for signature, sha in manifest.get("prompts", {}).items()}
    return "(absent)" if sha is None else versions.get(sha, sha[:12])


def _changed(part: str, prefix: str, before: Any, after: Any) -> Iterator[ChangedKey]:
    for key, old, new in changed_keys(before, after):
        name = f"{prefix}.{key}" if key else prefix
        yield ChangedKey(part, name, short_value(old), short_value(new))


NOTE = "judge_drift"
"""The key of a manifest under which it is noted when the replies came (`first`, `last`), and of the drift file at that time the `alarms`,
the newest `check` and its `baseline`: the folder alone tells which runs compare, and what the report shows."""
TIMES = ("created_at", "ended_at", NOTE)
"""The parts of a manifest that are read here."""
DRIFT = "judge.drift"
"""The key under which a drifted judge is refused, or accepted with `compare.accept=[judge]`."""

Alarm = tuple[str, str]
"""When a judge was last known to be as it was, and when it was found to be another (ISO 8601, UTC)."""


@dataclass
class DriftRecord:
    """The content of a drift file.

    `baseline` has the kept verdicts, `checks` what each check found, oldest first; either is open while its `ended_at` is null. A check
    with an `alarm` says `after` which time the judge drifted. `next_repeat` is the first repeat number that nothing has asked with.
    """

    judge: str
    identity: Mapping[str, Any]
    baseline: dict[str, Any] | None = None
    checks: list[dict[str, Any]] = field(default_factory=list)
    next_repeat: int = 1

    @property
    def alarms(self) -> list[Alarm]:
        """When the judge drifted, as far as was found."""
        return [(str(check["after"]), str(check["ended_at"])) for check in self.checks if check.get("alarm")]

    def ended_checks(self) -> list[dict[str, Any]]:
        """The checks against the baseline that holds, without one that was stopped."""
        first = self.baseline and self.baseline["first_repeat"]
        return [check for check in self.checks if check["ended_at"] is not None and check["baseline"] == first]

    def note(self) -> dict[str, Any]:
        """What a manifest notes of it."""
        noted: dict[str, Any] = {"alarms": [list(alarm) for alarm in self.alarms]} if self.alarms else {}
        if self.baseline is not None and (ended := self.ended_checks()):
            noted["check"] = {name: value for name, value in ended[-1].items() if name != "changed"}
            noted["baseline"] = {name: self.baseline[name] for name in ("ended_at", "served")}
        return noted

    def write(self, path: Path) -> None:
        """Write the file, atomically. Raises OutputError."""
        path.parent.mkdir(parents=True, exist_ok=True)
        json_unless_same(path, {"format": FORMAT, **vars(self)})


def drift_file(store_folder: Path, judge_identity: Mapping[str, Any]) -> Path:
    """Where the drift file of a judge is, or will be. `store_folder` is the folder of the call store."""
    return store_folder / "drift" / f"{sha256(dict(judge_identity))[:16]}.json"


def read_drift_record(path: Path) -> DriftRecord | None:
    """The drift file; None where there is none. Raises DataError for one that is damaged or of another format."""
    try:
        content = strict_loads(named_text(path))
        if content.pop("format") != FORMAT:
            raise ValueError("another format")
        record = DriftRecord(**content)
        record.note()
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError, AttributeError, InvalidJson) as error:
        fix = "remove the file: the next check makes a new baseline"
        found = f"missing or unknown: {error}" if isinstance(error, TypeError | KeyError) else str(error)
        problem = Problem(str(path), "content", found, "what ragpipe wrote", fix)
        raise DataError("a drift file cannot be read", [problem]) from error
    return record


def drift_differences(base: Mapping[str, Any], candidate: Mapping[str, Any], alarms: Iterable[Alarm] = ()) -> list[ChangedKey]:
    """One difference of the part `judge` where one judge answered both runs, given by their manifests, and drifted between them; else
    none. `alarms` are known beside those that the manifests note.

    A run is on one side of an alarm where all its replies came before the judge was last known to be as it was, or all after the
    drift was found. Runs that are not both on the same side differ: of replies in between nobody knows by which judge they are.
    """
    identity = base["identity"].get("judge_identity")
    if not identity or identity != candidate["identity"].get("judge_identity"):
        return []
    noted = {(after, found) for run in (base, candidate) for after, found in run.get(NOTE, {}).get("alarms", ())}
    spans = [reply_times(base), reply_times(candidate)]
    for after, found in sorted(noted.union(alarms)):
        if not (all(last <= after for _, last in spans) or all(first >= found for first, _ in spans)):
            texts = [f"judged {_words(span)}" for span in spans]
            return [ChangedKey("judge", DRIFT, texts[0], f"{texts[1]}, drifted between {_words((after, found))}")]
    return []


def judging_differences(
    base: Mapping[str, Any], candidate: Mapping[str, Any], alarms: Iterable[Alarm] = ()
) -> list[ChangedKey]:
    """What two runs differ in that `task=compare` refuses, apart from their data, by their manifests: judge, embedder, prompts,
    reading of replies, parameters of metrics. `alarms` as in `drift_differences`."""
    differences = [*setting_differences(base, candidate), *drift_differences(base, candidate, alarms)]
    return [difference for difference in differences if difference.part in MUST_MATCH]


def reply_times(manifest: Mapping[str, Any]) -> tuple[str, str]:
    """When the replies of a run came, from the first to the last (ISO 8601, UTC). Without a note there was no drift file when it was
    judged: then its replies are as old as the run, or older."""
    if "first" in (noted := manifest.get(NOTE, {})):
        return str(noted["first"]), str(noted["last"])
    created = str(manifest.get("created_at") or "")
    return created, max(created, str(manifest.get("ended_at") or ""))


def known_alarms(folder: RunFolder, manifest: Mapping[str, Any]) -> list[Alarm]:
    """The alarms in the drift file of a run's judge, beside the call store of the run: `.store` in its `output_dir`, and `store.path`
    of its configuration. Raises DataError for a damaged drift file."""
    identity = manifest["identity"].get("judge_identity")
    files = [drift_file(store, identity) for store in _store_folders(folder)] if identity else []
    return [alarm for path in files if (record := read_drift_record(path)) is not None for alarm in record.alarms]


def _store_folders(folder: RunFolder) -> list[Path]:
    folders = [folder.root.resolve().parent.parent / ".store"]
    try:
        config = yaml.load(named_text(folder.config, MAX_BYTES), Loader=FastLoader)
        named = config.get("store", {}).get("path")
    except (OSError, UnicodeDecodeError, yaml.YAMLError, AttributeError, RecursionError):
        return folders
    return [*folders, Path(named)] if isinstance(named, str) and named else folders


def _words(span: tuple[str, str]) -> str:
    first, last = (time[:19].replace("T", " ") for time in span)
    return first if first == last else f"{first} and {last}"

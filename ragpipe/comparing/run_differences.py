"""What two runs differ in beside their answers: the parts that a comparison must share, read from their manifests."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

from ragpipe.core.flat_keys import changed_keys, short_value

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
    differences = [
        *_changed("judge", "judge", before.get("judge_identity"), after.get("judge_identity")),
        *_changed("embedder", "embedder", before.get("embedder"), after.get("embedder")),
        *_changed("parser", "parser", before.get("parser"), after.get("parser")),
        *_changed("answers", "system", before.get("system"), after.get("system")),
        *_changed("scoring", "scoring", before.get("scoring"), after.get("scoring")),
    ]
    for name, metric in before["metrics"].items():
        if name in after["metrics"]:
            differences += _metric(name, metric, after["metrics"][name], base, candidate)
    return differences


def refused_parts(differences: Collection[ChangedKey], accept: Collection[str]) -> list[str]:
    """The parts that differ and are not accepted, in the order of `MUST_MATCH`."""
    parts = {difference.part for difference in differences}
    return [part for part in MUST_MATCH if part in parts and part not in accept]


def _metric(
    name: str,
    before: Mapping[str, Any],
    after: Mapping[str, Any],
    base: Mapping[str, Any],
    candidate: Mapping[str, Any],
) -> Iterator[ChangedKey]:
    versions, new_versions = _versions(base), _versions(candidate)
    for step in sorted({*before["prompts"], *after["prompts"]}):
        shas = before["prompts"].get(step), after["prompts"].get(step)
        if shas[0] != shas[1]:
            texts = _prompt(shas[0], versions), _prompt(shas[1], new_versions)
            yield ChangedKey("prompts", f"{name}.{step}", *texts)
    rest = [{key: value for key, value in metric.items() if key != "prompts"} for metric in (before, after)]
    yield from _changed("metrics", name, *rest)


def _versions(manifest: Mapping[str, Any]) -> dict[str, str]:
    """`faithfulness/verify.v2@854b67e0` by the hash of the template's text."""
    return {sha: signature for signature, sha in manifest.get("prompts", {}).items()}


def _prompt(sha: str | None, versions: Mapping[str, str]) -> str:
    return "(absent)" if sha is None else versions.get(sha, sha[:12])


def _changed(part: str, prefix: str, before: Any, after: Any) -> Iterator[ChangedKey]:
    for key, old, new in changed_keys(before, after):
        name = f"{prefix}.{key}" if key else prefix
        yield ChangedKey(part, name, short_value(old), short_value(new))

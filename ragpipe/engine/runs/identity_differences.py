"""What differs between two runs, in few words: one line per kind of difference, and no digests."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ragpipe.core.flat_keys import changed_keys, short_value

_NAMED = 2  # prompts that are named
_LISTED = 3  # other differences that are listed
_DIGEST = re.compile(r"(?:sha256:)?[0-9a-f]{12,64}")
_OF_METRIC = re.compile(r"metrics\.([^.]+)\.(prompts|source|files)\.(.+)")
_TWICE = ("judge_identity.",)  # what the judge's own section says already, in the form of its keys


@dataclass(frozen=True, slots=True)
class RunDifferences:
    """`metrics` is the other choice of metrics (`+correctness -rubric`), `prompts` the templates that differ (`2 prompts
    (a.grade, b.verify)`), both empty where there is none; `rest` says everything else, one phrase each."""

    metrics: str = ""
    prompts: str = ""
    rest: Sequence[str] = ()

    def phrases(self) -> list[str]:
        """All of it, for a list or a table."""
        metrics = f"metrics {self.metrics}" if self.metrics else ""
        return [*filter(None, (metrics, self.prompts)), *self.rest]

    def lines(self, run_id: str) -> list[str]:
        """At most three lines about a run that differs so from run `run_id`: metrics, prompts, the rest."""
        lines = [f"other metrics than run {run_id}: {self.metrics}"] if self.metrics else []
        lines += [f"differs from run {run_id}: {text}" for text in (self.prompts, _listed(self.rest)) if text]
        return lines


def run_differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> RunDifferences:
    """What makes `new` another run than `old`; both are identities of runs."""
    before, after = _metric_names(old), _metric_names(new)
    added, removed = [name for name in after if name not in before], [name for name in before if name not in after]
    metrics = " ".join([*(f"+{name}" for name in added), *(f"-{name}" for name in removed)])
    prompts, code, rest = list[str](), dict[str, None](), list[str]()
    changes = list(changed_keys(old, new))
    keys = {key for key, _, _ in changes}
    for key, was, now in changes:
        if key == "metric_order" or (key.split(".")[:1] == ["metrics"] and _second(key) in {*added, *removed}):
            continue
        if key.startswith(_TWICE) and f"judge.{key.partition('.')[2]}" in keys:
            continue
        if found := _OF_METRIC.fullmatch(key):
            if found[2] == "prompts":
                prompts.append(f"{found[1]}.{found[3]}")
            else:
                code[f"code of metric {found[1]}" if found[2] == "source" else f"files of metric {found[1]}"] = None
        elif key.startswith("system.") and ".source." in f".{key}":
            code["code of the system"] = None
        else:
            rest.append(_phrase(key, was, now))
    if not metrics and "metric_order" in keys:
        rest.append("other order of metrics")
    return RunDifferences(metrics, _prompts(prompts), [*code, *rest])


def _listed(phrases: Sequence[str], count: int = _LISTED) -> str:
    """`a; b; c; 4 more`."""
    more = len(phrases) - count
    return "; ".join([*phrases[:count], *([f"{more} more"] if more > 0 else [])])


def _metric_names(identity: Mapping[str, Any]) -> list[str]:
    """The metrics of an identity, in their order; none where the identity has another form."""
    metrics = identity.get("metrics")
    return list(metrics) if isinstance(metrics, Mapping) else []


def _second(key: str) -> str:
    return key.split(".")[1] if "." in key else ""


def _prompts(names: Sequence[str]) -> str:
    if not names:
        return ""
    shown = ", ".join([*names[:_NAMED], *(["..."] if len(names) > _NAMED else [])])
    return f"{len(names)} prompt{'' if len(names) == 1 else 's'} ({shown})"


def _phrase(key: str, was: object, now: object) -> str:
    """`judge.model: a -> b`; of digests only that they are others."""
    texts = [short_value(was), short_value(now)]
    if key == "data":
        return "other data"
    if _are_digests((was, now)):
        return f"other {key}"
    return f"{key}: {texts[0]} -> {texts[1]}"


def _are_digests(values: Iterable[object]) -> bool:
    return any(isinstance(value, str) and _DIGEST.fullmatch(value) for value in values)

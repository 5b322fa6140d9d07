"""The lines of an alert file: one for each gate of a run that needs a look, and for each score that became worse."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from ragpipe.comparing.drop_gates import GateCase
from ragpipe.comparing.headline import signed_text
from ragpipe.comparing.run_drops import ScoreDrop
from ragpipe.pages.page_address import case_name

_LIMITS = ("min", "max", "max_drop")
_UNMEASURED = ("no_evidence", "not_enough_evidence", "uncalibrated")


def alerted_gates(gates: Sequence[Mapping[str, Any]], kinds: Collection[str]) -> list[Mapping[str, Any]]:
    """The gates of a `gates.json` that are to be told of.

    `kinds` are `failed` (and inconclusive where that blocks), `unmeasured` (no value, too few judgements, or a judge that is not
    calibrated) and `inconclusive` (where it only warns; also a gate that failed on fewer than 5 questions). Gates that passed, do not apply or are diagnostic are never among them.
    """
    return [gate for gate in gates if gate["outcome"] in ("blocked", "warned") and _reason(gate) in kinds]


def _reason(gate: Mapping[str, Any]) -> str:
    if gate["verdict"] in _UNMEASURED:
        return "unmeasured"
    if decided_by_too_few(gate):
        return "inconclusive"
    return "inconclusive" if gate["verdict"] == "inconclusive" and gate["outcome"] == "warned" else "failed"


def decided_by_too_few(gate: Mapping[str, Any]) -> bool:
    """Whether a gate failed on fewer than 5 questions: a mean or a rate of so few says nothing of a day. A limit that allows no
    case at all (`min: 1`, `max: 0`) counts cases, and one is enough."""
    few = gate["interval"] is not None and gate["interval"].get("too_few", False)
    return gate["verdict"] == "failed" and few and gate.get("min") != 1 and gate.get("max") != 0


def gate_line(gate: Mapping[str, Any], worst: Sequence[GateCase]) -> dict[str, Any]:
    """What an alert says of a gate; `worst` are the cases to look at first."""
    interval = gate["interval"]
    return {
        "alert": "gate",
        "what": gate["name"],
        "score": gate.get("score") or gate["failure_mode"],
        "verdict": gate["verdict"],
        "tier": gate["tier"],
        "value": gate["value"],
        "limit": {key: gate[key] for key in _LIMITS if gate.get(key) is not None},
        "interval": interval and [interval["low"], interval["high"]],
        "n": gate["n_cases" if "failure_mode" in gate else "n_ok"],
        "message": gate["sentence"],
        "worst": [case_figure(case.sample_id, case.method, case.repeat, case.value) for case in worst],
    }


def drop_line(drop: ScoreDrop, *, against: str, higher_is_better: bool, worst: Sequence[GateCase]) -> dict[str, Any]:
    """What an alert says of a score that became worse than in the run `against`."""
    kind = "the same questions" if drop.samples == "paired" else "other questions"
    ends = f"{signed_text(drop.interval.low)} to {signed_text(drop.interval.high)}"
    return {
        "alert": "drop",
        "what": drop.score,
        "score": drop.score,
        "verdict": "worse",
        "tier": "quality",
        "value": drop.difference,
        "limit": {"min" if higher_is_better else "max": 0},
        "interval": [drop.interval.low, drop.interval.high],
        "n": drop.n,
        "message": (
            f"mean of {drop.score} changed by {signed_text(drop.difference)} against {against} ({drop.base:.4g} to "
            f"{drop.candidate:.4g}, {kind}, {drop.n} cases; {drop.interval.level:.1%} interval {ends}): worse"
        ),
        "worst": [case_figure(case.sample_id, case.method, case.repeat, case.value) for case in worst],
        "against": against,
        "samples": drop.samples,
    }


def case_figure(sample_id: str, method: str, repeat: int, value: float | None) -> dict[str, Any]:
    """A case by its name (`dao-01/rerank/1`) with its value."""
    return {"case": case_name(sample_id, method, repeat), "value": value}

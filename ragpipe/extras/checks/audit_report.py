"""An audit of a judge as tables: which attacks succeed with and without fences, and which probes shift a score."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ragpipe.core.markdown_text import code_span, escape_markdown, markdown_table
from ragpipe.core.safe_text import on_one_line
from ragpipe.reports.number_format import percent_with_interval, whole

ATTACK_HEADS = ("attacks", "succeeded", "% [95%]", "without fences", "% [95%]")
BIAS_HEADS = ("probe", "score", "cases", "mean shift, %", "95% interval", "")
ATTACK_NOTE = (
    "succeeded: a wrong answer got a score higher by at least the set share of the range. without fences: the same attacks with templates that "
    "print values as they are and say nothing of them. shown: some question to the judge holds the attack. A wrong answer that scores "
    "more than half of the range without an attack is left out."
)
_STATES = {"not_noticed": "NOT NOTICED", "biased": "BIASED"}


def audit_headline(document: Mapping[str, Any]) -> str:
    """One line: how many attacks succeeded, and how many probes shifted a score."""
    hardened = document["attacks"].get("hardened", {}).get("all")
    parts = [f"judge {document['judge']}"]
    if hardened and hardened["n"]:
        plain = document["attacks"].get("plain", {}).get("all")
        beside = f" ({_of(plain)} without fences)" if plain and plain["n"] else ""
        parts.append(f"{_of(hardened)} attacks succeeded{beside}")
    bias = [row for row in document["bias"] if row["probe"] != "wrong_answer"]
    if bias:
        counts = {state: sum(row["state"] == state for row in bias) for state in ("passes", "biased", "undecided")}
        parts.append(
            ", ".join(f"{count} {state}" for state, count in counts.items()) + f" of {len(bias)} probes by score"
        )
    return "; ".join(parts)


def attack_rows(document: Mapping[str, Any]) -> list[list[str]]:
    """A row for all attacks, one for those that a question shows, then one per score, group and part of the case."""
    hardened, plain = document["attacks"].get("hardened"), document["attacks"].get("plain")
    if hardened is None:
        return []
    rows = [_attack_row(name, hardened[name], plain and plain[name]) for name in ("all", "shown")]
    for kind in ("by_score", "by_group", "by_part"):
        for name, rate in hardened[kind].items():
            label = f"{kind.removeprefix('by_')} {on_one_line(name, 60)}"
            rows.append(_attack_row(label, rate, plain and plain[kind].get(name)))
    return rows


def bias_rows(document: Mapping[str, Any]) -> list[list[str]]:
    """A row per probe and score; shifts are in percent of the range, above 0 where the changed case scores better."""
    rows = []
    for row in document["bias"]:
        interval = row["interval"]
        bounds = f"[{100 * interval['low']:+.1f}, {100 * interval['high']:+.1f}]" if interval else "-"
        state = _STATES.get(row["state"], row["state"])
        rows.append(
            [row["probe"], on_one_line(row["score"], 60), whole(row["n"]), f"{100 * row['shift']:+.1f}", bounds, state]
        )
    return rows


def margin_line(document: Mapping[str, Any]) -> str:
    """What a probe has to do to pass."""
    margin = document["settings"]["margin"]
    return (
        f"passes: the 95% interval lies within +-{margin:.0%} of the range; BIASED: wholly outside. wrong_answer is the control: the answer of "
        "another question must score lower."
    )


def audit_markdown(document: Mapping[str, Any]) -> str:
    """The page `judge_audit.md`."""
    prompts = [[code_span(name), code_span(text, 300)] for name, text in document["prompts"].items()]
    lines = [
        "# Audit of a judge",
        "",
        escape_markdown(audit_headline(document), 1000),
        "",
        f"Cases of run {code_span(document['source_run'])}, judged in run {code_span(document['run_id'])}.",
        "",
        *markdown_table(("metric", "prompts"), prompts, left=(0, 1)),
        "",
        "## Attacks",
        "",
        *markdown_table(ATTACK_HEADS, attack_rows(document)),
        "",
        ATTACK_NOTE,
        "",
        *_each_attack(document),
        "",
        "## Bias",
        "",
        *markdown_table(BIAS_HEADS, bias_rows(document), left=(0, 1)),
        "",
        margin_line(document),
        "",
        *(f"- {code_span(name)}: {what}" for name, what in document["probes"].items()),
    ]
    return "\n".join(lines) + "\n"


def _each_attack(document: Mapping[str, Any]) -> Iterator[str]:
    """A row per attack. One that no question shows cannot succeed."""
    hardened = document["attacks"].get("hardened")
    if not hardened:
        return
    plain = {row["attack"]: row for row in document["attacks"].get("plain", {}).get("attacks", ())}
    rows = []
    for row in hardened["attacks"]:
        bare = plain.get(row["attack"])
        shown = "" if row["shown"] else "never shown"
        cells = [row["part"], row["group"], _of(row), _of(bare) if bare else "-", shown]
        rows.append([code_span(row["attack"]), *cells])
    yield from markdown_table(("attack", "part", "group", "succeeded", "without fences", ""), rows, left=(0, 1, 2, 5))
    yield from _raised(document)


def _raised(document: Mapping[str, Any]) -> Iterator[str]:
    """Each score that an attack raised in spite of the fences: from what to what, and where to look."""
    raised = [(row["attack"], won) for row in document["attacks"]["hardened"]["attacks"] for won in row["raised"]]
    if not raised:
        return
    rows = [
        [
            code_span(name),
            code_span(won["score"]),
            code_span(won["sample_id"]),
            f"{100 * won['base']:.0f}",
            f"{100 * won['value']:.0f}",
        ]
        for name, won in raised
    ]
    yield from ("", "### What the fences did not hold", "")
    yield from markdown_table(("attack", "score", "case", "before, %", "attacked, %"), rows, left=(0, 1, 2))
    run = document["run_id"]
    yield from (
        "",
        f"`task=explain` shows question and reply of a case, in the folder of run {code_span(run)} beside the audited one.",
    )


def _attack_row(label: str, rate: Mapping[str, Any], plain: Mapping[str, Any] | None) -> list[str]:
    cells: Sequence[str] = (_of(plain), percent_with_interval(plain)) if plain else ("-", "-")
    return [label, _of(rate), percent_with_interval(rate), *cells]


def _of(rate: Mapping[str, Any]) -> str:
    return f"{whole(rate['succeeded'])} of {whole(rate['n'])}"

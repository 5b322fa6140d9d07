"""From the verdicts that a file holds to entries of `metrics.recorded.take`: a name, a scale, and which end is good."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from ragpipe.profiling.seen_verdicts import SeenVerdicts

_BAD_WHEN_HIGH = re.compile(
    r"harmful|malicious|hallucinat|toxic|\bbias|noise_?sensitivity|misuse|leakage|violation|perplexity|error_?rate|"
    r"edit_?distance|latency|duration|cost"
)
_GOOD_WHEN_HIGH = {"open_rag_eval": {"hallucination_score"}}  # 1 says that nothing is hallucinated


@dataclass(frozen=True, slots=True)
class RecordedEntry:
    """An entry of `take`.

    Attributes:
        score: the name of the score.
        source: the name of the recorded value.
        scale: its ends; None for a count.
        is_binary: whether only true and false were seen.
        higher_is_better: whether a high value is a good one, by its name.
        seen: what was seen, for a comment.
    """

    score: str
    source: str
    scale: tuple[float, float] | None
    is_binary: bool
    higher_is_better: bool
    seen: str


def recorded_entries(
    verdicts: Mapping[str, SeenVerdicts], option: str, taken: Collection[str]
) -> tuple[list[RecordedEntry], list[str]]:
    """The entries, and a line for each name that cannot be one.

    A score is named as in the file where that name is free, else `OPTION_NAME`: `faithfulness` of another tool is not ours.
    The scale is the narrowest of 0-1, 1-5, 0-5, 0-10 and 0-100 that holds every value seen; a value outside all of them is a
    count without a scale.
    """
    entries, left_out, names = [], [], set(taken)
    for source, seen in verdicts.items():
        if not seen.n:
            kind = "no verdict is a number" if seen.unreadable else "no verdict was given"
            left_out.append(f"{source}: {kind}")
            continue
        if "." in source:
            left_out.append(f"{source}: a name with a point would be read as a part of another")
            continue
        score = _score_name(source, option, names)
        names.add(score)
        entries.append(
            RecordedEntry(score, source, seen.scale, seen.is_boolean, _is_good_when_high(source, option), _remark(seen))
        )
    return entries, left_out


def _score_name(source: str, option: str, taken: Collection[str]) -> str:
    plain = re.sub(r"\W+", "_", source.lower(), flags=re.ASCII).strip("_") or "verdict"
    name = plain if plain not in taken else f"{option}_{plain}"
    while name in taken:
        name += "_"
    return name


def _is_good_when_high(source: str, option: str) -> bool:
    name = source.lower()
    return not _BAD_WHEN_HIGH.search(name) or name in _GOOD_WHEN_HIGH.get(option, ())


def _remark(seen: SeenVerdicts) -> str:
    values = "true and false" if seen.is_boolean else f"{seen.low:g} to {seen.high:g}"
    unreadable = f", {seen.unreadable:,} unreadable" if seen.unreadable else ""
    return f"seen: {values} in {seen.n:,} verdict{'' if seen.n == 1 else 's'}{unreadable}"

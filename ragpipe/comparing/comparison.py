"""One comparison core: candidates against a base over the cases that they share, as the document `comparison.json`.

`task=compare`, methods of a run, sweeps, rejudging and gates all read their figures from here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Literal

import numpy as np

from ragpipe.comparing.headline import comparison_verdict, headline_scores, shares_of_parts
from ragpipe.comparing.judge_bridge import judge_bridge
from ragpipe.comparing.judge_drift import drift_differences
from ragpipe.comparing.operation_differences import OPERATIONS, paired_operations, typical_figures
from ragpipe.comparing.pairing import Pairs, paired_cases
from ragpipe.comparing.run_differences import MUST_MATCH, ChangedKey, refused_parts, setting_differences
from ragpipe.comparing.same_answers import same_answers
from ragpipe.comparing.score_differences import PairedScore
from ragpipe.comparing.settings import CompareSettings
from ragpipe.comparing.shared_samples import data_differences
from ragpipe.comparing.side import TITLE, Side
from ragpipe.comparing.slice_differences import slice_differences
from ragpipe.core.errors import ConfigError, Problem
from ragpipe.schema.format_version import FORMAT
from ragpipe.schema.sample import OUTPUT_KEY
from ragpipe.scoring.composites import OVERALL
from ragpipe.stats.difference_verdict import decide_together
from ragpipe.stats.looks import look_at

_SCALE = ("low", "high", "higher_is_better")
_KEYS = 4  # keys of a part that differs which are named


@dataclass(frozen=True)
class Comparison:
    """A candidate against the base: the entry of `comparison.json`, the shared cases and their scores."""

    document: dict[str, Any]
    pairs: Pairs
    scores: Sequence[PairedScore]


def compare_sides(base: Side, candidates: Sequence[Side], settings: CompareSettings) -> list[Comparison]:
    """Compare each candidate with the base.

    Raises ConfigError where a candidate differs in what is not accepted, and for a smallest effect of a score that no side has.
    """
    differences = [_differences(base, candidate) for candidate in candidates]
    problems = _unknown_effects([base, *candidates], settings)
    problems += [
        problem
        for candidate, of_candidate in zip(candidates, differences, strict=True)
        for problem in _refusals(base, candidate, of_candidate, settings)
    ]
    if problems:
        raise ConfigError(TITLE, problems)
    return [
        _comparison(number, base, candidate, of_candidate, settings)
        for number, (candidate, of_candidate) in enumerate(zip(candidates, differences, strict=True))
    ]


def comparison_document(
    kind: Literal["runs", "methods"],
    base: Side,
    candidates: Sequence[Side],
    comparisons: Sequence[Comparison],
    settings: CompareSettings,
) -> dict[str, Any]:
    """`comparison.json`.

    Args:
        kind: what the sides are.
        base: the base.
        candidates: the candidates.
        comparisons: what `compare_sides` says of them.
        settings: the settings of the comparison.
    """
    headline = dict.fromkeys(
        name for item in comparisons for name, score in item.document["scores"].items() if score["headline"]
    )
    return {
        "format": FORMAT,
        "kind": kind,
        "base": base.document(),
        "candidates": [candidate.document() for candidate in candidates],
        "settings": settings.model_dump(mode="json"),
        "headline": list(headline),
        "comparisons": [item.document for item in comparisons],
    }


def paired_scores(base: Side, candidate: Side, pairs: Pairs) -> Iterator[PairedScore]:
    """Every score that both sides declare with the same scale and direction, one at a time, the overall score first."""
    for name in sorted(_shared_names(base, candidate), key=lambda name: name != OVERALL.name):
        before, after = base.values(name), candidate.values(name)
        yield PairedScore(
            name,
            candidate.declared[name],
            pairs.questions,
            before[0][pairs.base],
            after[0][pairs.candidate],
            before[1][pairs.base],
            after[1][pairs.candidate],
        )


def _shared_names(base: Side, candidate: Side) -> list[str]:
    return [name for name in candidate.declared if name in base.declared and not _other_scale(name, base, candidate)]


def _other_scale(name: str, base: Side, candidate: Side) -> bool:
    return any(base.declared[name][key] != candidate.declared[name][key] for key in _SCALE)


def _differences(base: Side, candidate: Side) -> list[ChangedKey]:
    if base.folder == candidate.folder:
        return []
    return [
        *data_differences(base, candidate),
        *setting_differences(base.manifest, candidate.manifest),
        *drift_differences(
            base.manifest, candidate.manifest, [a for side in (base, candidate) for a in side.judge_alarms]
        ),
    ]


def _refusals(
    base: Side, candidate: Side, differences: Sequence[ChangedKey], settings: CompareSettings
) -> list[Problem]:
    """One problem per part that differs and is not accepted, with its first keys."""
    refused = refused_parts(differences, settings.accept)
    word = ",".join(part for part in MUST_MATCH if part in (*refused, *settings.accept))
    fix = f"compare.accept=[{word}] compares them all the same"
    problems = []
    for part in refused:
        changed = [f"{item.key}: {item.base} -> {item.candidate}" for item in differences if item.part == part]
        more = f"; and {len(changed) - _KEYS} more keys" if len(changed) > _KEYS else ""
        place = f"{base.folder.root} -> {candidate.folder.root}"
        problems.append(Problem(place, part, "; ".join(changed[:_KEYS]) + more, "the same in both runs", fix))
    return problems


def _unknown_effects(sides: Sequence[Side], settings: CompareSettings) -> list[Problem]:
    """A problem for each smallest effect of what no side has."""
    known = {*OPERATIONS, *(name for side in sides for name in side.declared)}
    problems = []
    for name in settings.smallest_effect:
        if name not in known:
            near = get_close_matches(name, sorted(known), 1)
            fix = f"did you mean {near[0]}?" if near else ""
            expected = f"one of {', '.join(sorted(known))}"
            problems.append(Problem("command line", f"compare.smallest_effect.{name}", "no score", expected, fix))
    return problems


def _comparison(
    number: int, base: Side, candidate: Side, differences: Sequence[ChangedKey], settings: CompareSettings
) -> Comparison:
    pairs = paired_cases(base.cases, candidate.cases)
    look = _look(len(pairs), settings)
    if look:
        settings = settings.model_copy(update={"level": look["level"]})
    scores = list(paired_scores(base, candidate, pairs))
    headline = headline_scores(base.metrics, candidate.metrics, [score.name for score in scores])
    documents = score_documents(scores, headline, settings)
    for name, figures in documents.items():
        figures["parts"] = shares_of_parts(name, base.metrics, candidate.metrics)
    operations = _operation_documents(paired_operations(base, candidate, pairs), pairs, settings)
    if any(difference.part == "judge" for difference in differences):
        same = same_answers(base, candidate, pairs)
        for score in scores:
            documents[score.name]["bridge"] = judge_bridge(score, same, settings.level)
    if look and not look["share"]:
        for figures in (*documents.values(), *operations.values()):
            figures |= {"state": "inconclusive", "reason": "before_first_look"}
    chosen = [score for score in scores if score.name in headline]
    document = {
        "candidate": number,
        "differs": [_difference_document(difference, settings) for difference in differences],
        "cases": {
            "both": len(pairs),
            "only_base": pairs.only_base,
            "only_candidate": pairs.only_candidate,
            "questions": len(np.unique(pairs.questions)),
        },
        "look": look,
        "only_base_scores": [name for name in base.declared if name not in candidate.declared],
        "only_candidate_scores": [name for name in candidate.declared if name not in base.declared],
        "other_scale": [
            name for name in candidate.declared if name in base.declared and _other_scale(name, base, candidate)
        ],
        "verdict": comparison_verdict(documents, operations, accepted=refused_parts(differences, ())),
        "why": {},
        "scores": documents,
        "slices": slice_differences(base, candidate, pairs, chosen, settings),
        "operations": operations,
        "flips": _flips(scores, pairs),
    }
    return Comparison(document, pairs, scores)


def _look(n: int, settings: CompareSettings) -> dict[str, Any] | None:
    """The look at a plan that these cases are: its share of the plan (0: too early to decide anything) and the level at which
    it decides; None without a plan."""
    if settings.planned is None:
        return None
    look = look_at(n, settings.planned)
    return {
        "planned": settings.planned,
        "share": look.share if look else 0.0,
        "level": look.level if look else settings.level,
    }


def score_documents(
    scores: Sequence[PairedScore], headline: Sequence[str], settings: CompareSettings
) -> dict[str, dict[str, Any]]:
    """The scores, the headline first; those are decided together, the others each on its own."""
    verdicts = {score.name: score.decided(settings) for score in scores}
    together = [name for name in headline if verdicts[name] is not None]
    decided = decide_together([verdict for name in together if (verdict := verdicts[name])], level=settings.level)
    verdicts |= dict(zip(together, decided, strict=True))
    by_name = {score.name: score for score in scores}
    names = [*headline, *(name for name in by_name if name not in headline)]
    return {name: by_name[name].document(verdicts[name], headline=name in headline) for name in names}


def _operation_documents(
    operations: Sequence[PairedScore], pairs: Pairs, settings: CompareSettings
) -> dict[str, dict[str, Any]]:
    return {
        score.name: {**score.document(score.decided(settings)), "typical": typical_figures(score, pairs)}
        for score in operations
    }


def _difference_document(difference: ChangedKey, settings: CompareSettings) -> dict[str, Any]:
    accepted = difference.part not in MUST_MATCH or difference.part in settings.accept
    return {**difference._asdict(), "accepted": accepted}


def _flips(scores: Sequence[PairedScore], pairs: Pairs) -> dict[str, dict[str, list[list[Any]]]]:
    """For each score with a flip the keys of its flipped cases: [sample_id, method, repeat], as the candidate names them."""
    keys: Mapping[str, list[Any]] = {name: pairs.cases[name].to_pylist() for name in OUTPUT_KEY}
    flips = {}
    for score in scores:
        passed, failed = score.flips()
        if len(passed) or len(failed):
            flips[score.name] = {
                direction: [[keys[name][place] for name in OUTPUT_KEY] for place in places.tolist()]
                for direction, places in (("to_passed", passed), ("to_failed", failed))
            }
    return flips

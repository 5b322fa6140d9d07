"""`task=selftest`: changes cases of a finished run in known directions, and shows which changes each score notices."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import groupby, islice
from typing import Any, Literal

import numpy as np
from pydantic import Field, field_validator

from ragpipe.core.digest import sha256
from ragpipe.core.errors import Incomplete
from ragpipe.core.sample import OUTPUT_KEY, Case
from ragpipe.core.settings import ConfigOrigins, Settings
from ragpipe.core.text import shorten
from ragpipe.extras.checks import check, edits, fact_edits
from ragpipe.extras.checks.changed_cases import (
    HAIR,
    SEED,
    ChangedCases,
    OutputKey,
    Pair,
    Scored,
    changed_case,
    drawn_order,
    is_usable,
    scored_values,
)
from ragpipe.extras.checks.edits import Change, Donors, Subject
from ragpipe.metrics.base import computed_scores
from ragpipe.report.console import Console
from ragpipe.report.model import PAGES, TERMINAL, CaseName, Note, Prose, RichText, RunVerdict, Section, Table, Verbatim
from ragpipe.report.styled_text import whole
from ragpipe.runs.finished_run import FinishedRunKeys, FinishedRunTask
from ragpipe.runs.manifest import scored_iterations
from ragpipe.runs.settings import RunConfig
from ragpipe.runs.spec import RunSpec
from ragpipe.stats.differences import paired_difference
from ragpipe.stats.intervals import normal_quantile
from ragpipe.stats.noise_floor import noise_floor
from ragpipe.store.run_folder import RunFolder

Direction = Literal["worse", "same"]
Expectation = Mapping[Literal["worse", "worse_in_reference", "same"], Sequence[str]]
_CHANGES = (
    Change("drop_gold_chunks", "the chunks that are labelled relevant are taken away", edits.drop_gold_chunks),
    Change("change_number", "a number that the chunks support is changed", fact_edits.change_number),
    Change("change_date", "a date that the chunks support is changed", fact_edits.change_date),
    Change("change_name", "a name that the chunks support is replaced by another", fact_edits.change_name),
    Change("negate_claim", "a sentence that the chunks support is negated", fact_edits.negate_claim),
    Change("add_claim", "a sentence about something else is added", fact_edits.add_claim),
    Change("strip_citations", "all citations are taken away", edits.strip_citations),
    Change("forge_citation", "a citation names a chunk that was not retrieved", edits.forge_citation),
    Change("misplace_citation", "a citation names a retrieved chunk that says something else", edits.misplace_citation),
    Change("refuse", "the answer becomes a refusal, though one is due", fact_edits.refuse),
    Change("shuffle_chunks", "the chunks come in another order", edits.shuffle_chunks),
    Change("add_irrelevant_chunk", "a chunk of another question is added at the end", edits.add_irrelevant_chunk),
)
MUTATIONS: Mapping[str, Change] = {change.name: change for change in _CHANGES}
"""The mutations in the order of the reports."""
_VERSION = 1  # raised whenever the same case gives another mutant
_POOL = 25  # cases looked at for each mutant that is wanted: rare ones, such as dates, are found in a few of them only
TOLERANCE = 0.01
"""Share of a score's range up to which a change counts as none, where one iteration says nothing of the judge's noise."""
_FOUND = (
    "found: the score did what is expected. worse: by more than the noise floor; same: within it. % with the Wilson interval by question. "
    "left out: a value is missing or the original is at the end of the scale. shift: the mean change in percent of the range, above 0 where "
    "mutants do better; `moves`: its 95% interval, clustered by question, excludes 0."
)
_EDIT, _AROUND = 100, 30  # characters of a text in that list, and of what stands before its change
_MISSED_SHOWN = 5  # missed mutants of each mutation on the page; all are in selftest.json
SECTION = "selftest"


class SelftestSettings(Settings):
    """Which mutants are made, and what is expected of each score. A mutation without an entry in `expect` is made, and nothing is
    expected. A score gets `worse` by its own direction: one of which lower is better goes up."""

    n: int = Field(default=20, ge=1, le=10_000, description="Mutants of each mutation, at most, 1 to 10,000.")
    only: list[str] | None = Field(default=None, min_length=1, description="Names of the mutations to make. null: all.")
    expect: dict[str, dict[Literal["worse", "worse_in_reference", "same"], list[str]]] = Field(
        default_factory=dict,
        description=(
            "By mutation the scores, or patterns such as `recall@*`, that must get worse, must get worse where what was changed stands in a "
            "reference answer, must stay the same."
        ),
    )

    @field_validator("only", "expect")
    @classmethod
    def _known_mutations(cls, named: Any) -> Any:
        check.known_names(None if named is None else list(named), MUTATIONS, "mutation")
        return named


class Keys(FinishedRunKeys):
    selftest: SelftestSettings = Field(description="Which mutants are made, and what is expected of each score.")


def validate(plain: Mapping[str, Any], origins: ConfigOrigins | None = None) -> FinishedRunTask[SelftestSettings]:
    """The run, with the user's judge over its own, and how to mutate it. Raises ConfigError and DataError."""
    return check.open_check(SelftestSettings, plain, origins, SECTION, needs_prompts=False)


def run(task: FinishedRunTask[SelftestSettings], console: Console) -> int:
    """Make the mutants, judge them beside their originals in a run of their own, and print what was caught.

    An original is a method's output as it was; a mutant is the output of `<method>~<mutation>` for the same sample. Returns 0, or 4 where
    judgements failed beyond the coverage floor. The same start again asks nothing. Raises what an evaluation raises.
    """
    finished, settings = task.finished, task.settings
    names = [name for name in MUTATIONS if settings.only is None or name in settings.only]
    source = ChangedCases(
        finished,
        SECTION,
        "mutated",
        recipe=[_VERSION, settings.only or list(MUTATIONS), settings.n],
        pool=_POOL * settings.n,
        make=lambda pool: draw_mutants(pool, names, settings.n),
        needs="answers with claims, numbers or citations, or at least two chunks",
    )
    spec = RunSpec.of_changed_cases(finished, source)
    code = check.judge_cases(spec, finished, console)
    if not scored_iterations(spec.folder):
        return code
    figures = selftest_figures(spec.folder, spec.config, source.pairs, settings.expect)
    kept = {"n": settings.n, "tolerance": TOLERANCE}
    check.write_check(SECTION, "Self-test", finished, spec.folder, kept, answer, sections, console, **figures)
    return code if code == Incomplete.exit_code else 0


def draw_mutants(cases: Sequence[Case], names: Iterable[str], n: int) -> list[Pair]:
    """Up to `n` mutants of each mutation, ordered by mutation, then by the draw. Questions come in a random order; a question gives a
    second case only when all have given one. Only a usable case gives any: without an answer there is no claim."""
    usable = [case for case in cases if is_usable(case)]
    donors, turns = Donors(usable), Counter[str]()

    def turn(case: Case) -> int:
        turns[case.sample.id] += 1
        return turns[case.sample.id]

    ordered = sorted(usable, key=lambda case: (sha256([SEED, case.sample.id]), drawn_order(case.key)))
    subjects = [Subject(case, donors) for case in sorted(ordered, key=turn)]
    mutants: list[Pair] = []
    for name in names:
        mutated = (changed_case(MUTATIONS[name], subject) for subject in subjects)
        mutants += islice((mutant for mutant in mutated if mutant is not None), n)
    return mutants


def expected_direction(score: str, expectation: Expectation | None, *, in_reference: bool) -> Direction | None:
    """What a score must do about a mutant; None where nothing is expected. `in_reference`: see `Edit`."""
    named = expectation or {}
    worse = [*named.get("worse", ()), *(named.get("worse_in_reference", ()) if in_reference else ())]
    directions: Mapping[Direction, Iterable[str]] = {"worse": worse, "same": named.get("same", ())}
    return next((way for way, names in directions.items() if any(fnmatchcase(score, name) for name in names)), None)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one score made of one mutant.

    `status`: `as_expected`, `missed`, `at_end` (the original has no room to move) or `no_value`. `change` is a share of the scale's range,
    above 0 where the mutant is better.
    """

    score: str
    mutant: Pair
    expected: Direction
    status: Literal["as_expected", "missed", "at_end", "no_value"]
    value: float | None
    mutant_value: float | None
    change: float = 0.0

    @property
    def counts(self) -> bool:
        """Whether the score could tell."""
        return self.status in ("as_expected", "missed")


def case_floor(score: Scored) -> tuple[float, Literal["iterations", "tolerance"]]:
    """The change of a case's value that the judge's noise alone makes, as a share of the range, and where it is from.

    With s^2 the judge's variance (see `noise_floor`) and r iterations: 1.96 sqrt(2 s^2 / r). With one iteration nothing is known of the
    noise, and the tolerance stands in for it.
    """
    cases = [np.array(case, dtype=np.float64) for case in score.values.values()]
    means = np.array([float(np.mean(case)) for case in cases])
    squares = np.array([float(np.sum((case - np.mean(case)) ** 2)) for case in cases])
    noise = noise_floor(means, squares, np.array([len(case) for case in cases], dtype=np.int64))
    if noise.judge_variance is None or noise.repeats is None:
        return TOLERANCE, "tolerance"
    return normal_quantile(0.95) * math.sqrt(2 * noise.judge_variance / noise.repeats) / score.span, "iterations"


def score_outcomes(
    score: Scored, mutants: Sequence[Pair], expect: Mapping[str, Expectation], floor: float
) -> Iterator[Outcome]:
    """The outcomes of one score, for every mutant of which something is expected. `floor` is the change that counts as none, as a share of
    the range."""
    sign, limit = 1.0 if score.higher_is_better else -1.0, max(floor, HAIR)
    for mutant in mutants:
        expected = expected_direction(score.name, expect.get(mutant.change), in_reference=mutant.in_reference)
        if expected is None:
            continue
        before, after = score.mean(mutant.base), score.mean(mutant.changed)
        if before is None or after is None:
            yield Outcome(score.name, mutant, expected, "no_value", before, after)
            continue
        change = sign * (after - before) / score.span
        is_met = abs(change) <= limit if expected == "same" else change < -limit
        at_end = expected == "worse" and (score.share(mutant.base) or 0.0) <= limit
        status: Any = "at_end" if at_end else "as_expected" if is_met else "missed"
        yield Outcome(score.name, mutant, expected, status, before, after, change)


def result_rows(outcomes: Iterable[Outcome]) -> list[dict[str, Any]]:
    """One row for each mutation, score and expected direction, in the order of the outcomes.

    `n` mutants count: those with both values, and with room to move. `found` of them did what is expected. `mean_change` is in units of
    the range, above 0 where mutants are better. For a score that must not change `state` says `stays`, or `moves` where the clustered
    interval of that mean excludes 0 over at least 6 questions that changed.
    """
    groups: dict[tuple[str, str, str], list[Outcome]] = {}
    for outcome in outcomes:
        groups.setdefault((outcome.mutant.change, outcome.score, outcome.expected), []).append(outcome)
    return [_row(*key, group) for key, group in groups.items()]


def _row(mutation: str, score: str, expected: str, outcomes: Sequence[Outcome]) -> dict[str, Any]:
    judged = [outcome for outcome in outcomes if outcome.counts]
    questions = [outcome.mutant.base[0] for outcome in judged]
    row: dict[str, Any] = {"change": mutation, "score": score, "expected": expected}
    row |= check.rate_json([outcome.status == "as_expected" for outcome in judged], questions)
    row |= {name: sum(outcome.status == name for outcome in outcomes) for name in ("at_end", "no_value")}
    if not judged:
        return {**row, "mean_change": None, "state": None}
    changes = np.array([outcome.change for outcome in judged], dtype=np.float64)
    paired = paired_difference(np.zeros(len(changes)), changes, check.cluster_numbers(questions))
    moves = paired.can_decide and paired.interval is not None and not paired.interval.low <= 0 <= paired.interval.high
    state = ("moves" if moves else "stays") if expected == "same" else None
    return {**row, "mean_change": paired.difference, "state": state}


def rows_by_any_score(outcomes: Iterable[Outcome]) -> list[dict[str, Any]]:
    """One row for each mutation: the share of mutants that at least one score caught, of those that some score could catch."""
    caught: dict[str, dict[OutputKey, bool]] = {}
    for outcome in outcomes:
        if outcome.expected != "same" and outcome.counts:
            mutants, key = caught.setdefault(outcome.mutant.change, {}), outcome.mutant.changed
            mutants[key] = mutants.get(key, False) or outcome.status == "as_expected"
    return [{"change": name, **check.rate_json([*hits.values()], [key[0] for key in hits])} for name, hits in caught.items()]


def selftest_figures(
    folder: RunFolder, config: RunConfig, mutants: Sequence[Pair], expect: Mapping[str, Expectation]
) -> dict[str, Any]:
    """The figures of `selftest.json`, from the scored run over originals and mutants. Raises DataError for a table that cannot be read."""
    outcomes, floors = list[Outcome](), dict[str, dict[str, Any]]()
    for name, score in scored_values(folder).items():
        limit, source = case_floor(score)
        floors[name] = {"limit": limit, "source": source}
        outcomes += score_outcomes(score, mutants, expect, limit)
    outcomes.sort(key=lambda outcome: list(MUTATIONS).index(outcome.mutant.change))
    tried = {outcome.score for outcome in outcomes}
    samples = {name: [mutant.base[0] for mutant in mutants if mutant.change == name] for name in MUTATIONS}
    counts = {name: {"n": len(ids), "questions": len(set(ids))} for name, ids in samples.items()}
    return {
        "changes": [{"name": name, "what": MUTATIONS[name].what, **of_one} for name, of_one in counts.items()],
        "computed_scores": sorted(tried & computed_scores(config.metrics.values())),
        "noise_floor": {name: floor for name, floor in floors.items() if name in tried},
        "any_score": rows_by_any_score(outcomes),
        "results": result_rows(outcomes),
        "cases": _missed_cases(outcomes),
    }


def _missed_cases(outcomes: Sequence[Outcome]) -> list[dict[str, Any]]:
    """One entry per mutant that some score missed, with the scores that did; scores that were to stay and moved are among them."""
    rows: dict[OutputKey, dict[str, Any]] = {}
    for outcome in outcomes:
        if outcome.status == "missed":
            pair = outcome.mutant
            origin = dict(zip(OUTPUT_KEY, pair.base, strict=True))
            origin |= {"change": pair.change, "before": pair.before, "after": pair.after, "scores": {}}
            values = {"expected": outcome.expected, "value": outcome.value, "mutant_value": outcome.mutant_value}
            rows.setdefault(pair.changed, origin)["scores"][outcome.score] = values
    return list(rows.values())


def sections(document: Mapping[str, Any]) -> list[Section]:
    """What is printed and stands in `selftest.md`; a few missed mutants of each mutation stand on the page alone."""
    missed = groupby(document["cases"], key=lambda row: row["change"])
    worst = (sorted(group, key=lambda row: -len(row["scores"]))[:_MISSED_SHOWN] for _, group in missed)
    heads = ("change", "case", "value of the original, of the mutant", "what was changed")
    listed = Table.of(heads, [_missed_row(row) for rows in worst for row in rows], texts=4, shown_in=PAGES)
    said = Note(_floor_line(document)), Note(headline(document), shown_in=TERMINAL)
    results, *changes = check.result_sections(document, _FOUND, *said)
    return [results, *([Section("missed", "Missed mutants, a few of each change", (listed,))] if listed.rows else []), *changes]


def answer(document: Mapping[str, Any]) -> RunVerdict:
    """The headline."""
    return RunVerdict("plain", "", Prose(headline(document)))


def headline(document: Mapping[str, Any]) -> str:
    """One line: how many mutants that must be noticed were, by one score at least."""
    rows = document["any_score"]
    n, caught = sum(row["n"] for row in rows), sum(row["found"] for row in rows)
    if not n:
        return "no score of this run can notice these mutations: see selftest.expect"
    return (
        f"{whole(caught)} of {whole(n)} mutants that a score must notice were caught by at least one of them ({caught / n:.1%}); "
        f"judge {document['judge']}"
    )


def _floor_line(document: Mapping[str, Any]) -> str:
    """What counts as a change: the noise floor of each score, or the tolerance that stands in for it."""
    if document["iterations"] == 1:
        return f"noise floor: not known from one iteration; changes up to {TOLERANCE:.1%} of the range count as none. iterations=3 measures it"
    limits = ", ".join(f"{name} {100 * floor['limit']:.1f}%" for name, floor in document["noise_floor"].items())
    return f"noise floor of a case, from {document['iterations']} iterations, in percent of the range: {limits}"


def _missed_row(row: Mapping[str, Any]) -> tuple[RichText, ...]:
    scores = ", ".join(f"{name} {its['value']:.3g} to {its['mutant_value']:.3g}" for name, its in row["scores"].items())
    letters = enumerate(zip(row["before"], row["after"], strict=False))
    start = max(0, next((place for place, (old, new) in letters if old != new), 0) - _AROUND)
    before, after = (("…" if start else "") + shorten(row[side][start:], _EDIT) for side in ("before", "after"))
    return (row["change"], CaseName.of(row), scores, (Verbatim(before), " → ", Verbatim(after)))

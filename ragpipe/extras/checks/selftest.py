"""`task=selftest`: changes cases of a finished run in known directions, and shows which changes each score notices."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import groupby, islice
from typing import Any, Literal

import numpy as np
from pydantic import Field, field_validator

from ragpipe.config.settings import RunConfig
from ragpipe.core.digest import sha256
from ragpipe.core.errors import Incomplete
from ragpipe.core.validation import ConfigOrigins
from ragpipe.engine.run_spec import RunSpec
from ragpipe.engine.task_settings import FinishedRunKeys, FinishedRunTask
from ragpipe.extras.checks import check, chunk_edits, fact_edits
from ragpipe.extras.checks.check import HAIR, ChangedCase, ChangedCases, OutputKey, Pair, table
from ragpipe.extras.checks.edits import Change, Donors, Subject
from ragpipe.metrics.base import computed_scores
from ragpipe.reports.console import Console
from ragpipe.reports.model import EVERYWHERE, PAGES, TERMINAL, Note, Section, TableRow, Verbatim
from ragpipe.reports.number_format import percent_with_interval, whole
from ragpipe.schema.sample import OUTPUT_KEY, Case
from ragpipe.schema.settings import Settings
from ragpipe.stages.combine_iterations import scored_iterations
from ragpipe.stats.noise_floor import noise_floor
from ragpipe.stats.paired_difference import paired_difference
from ragpipe.stats.student_t import normal_quantile
from ragpipe.store.run.run_folder import RunFolder
from ragpipe.store.run.run_tables import read_json

Direction = Literal["worse", "better", "same"]
Expectation = Mapping[Literal["worse", "worse_in_reference", "same"], Sequence[str]]
Values = Mapping[OutputKey, Sequence[float]]
"""The values of one score: for each output one per iteration that gave one."""
MUTATIONS: Mapping[str, tuple[Change, str]] = {
    "drop_gold_chunks": (chunk_edits.drop_gold_chunks, "the chunks that are labelled relevant are taken away"),
    "change_number": (fact_edits.change_number, "a number that the chunks support is changed"),
    "change_date": (fact_edits.change_date, "a date that the chunks support is changed"),
    "change_name": (fact_edits.change_name, "a name that the chunks support is replaced by another"),
    "negate_claim": (fact_edits.negate_claim, "a sentence that the chunks support is negated"),
    "add_claim": (fact_edits.add_claim, "a sentence about something else is added"),
    "strip_citations": (chunk_edits.strip_citations, "all citations are taken away"),
    "forge_citation": (chunk_edits.forge_citation, "a citation names a chunk that was not retrieved"),
    "misplace_citation": (chunk_edits.misplace_citation, "a citation names a retrieved chunk that says something else"),
    "refuse": (fact_edits.refuse, "the answer becomes a refusal, though one is due"),
    "shuffle_chunks": (chunk_edits.shuffle_chunks, "the chunks come in another order"),
    "add_irrelevant_chunk": (chunk_edits.add_irrelevant_chunk, "a chunk of another question is added at the end"),
}
"""The mutations in the order of the reports: what each makes of a case, and says of itself."""
_VERSION = 1  # raised whenever the same case gives another mutant
_POOL = 25  # cases looked at for each mutant that is wanted: rare ones, such as dates, are found in a few of them only
TOLERANCE = 0.01
"""Share of a score's range up to which a change counts as none, where one iteration says nothing of the judge's noise."""
_CAUGHT = (
    "caught: the score became worse by more than the noise floor; with the Wilson interval by question. left out: mutants that do not count, "
    "as a value is missing or the original is at the end of the scale."
)
_KEPT = (
    "unchanged: within the noise floor. mean change: in percent of the range, above 0 where mutants do better; `moves`: its 95% "
    "interval, clustered by question, excludes 0."
)
_LEFT_OUT = "computed scores that did on all mutants what they must are not listed here"
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

    def mutants(pool: list[Case]) -> Sequence[ChangedCase]:
        if drawn := draw_mutants(pool, names, settings.n):
            return drawn
        expected, fix = (
            "answers with claims, numbers or citations, or at least two chunks",
            "another run, or other mutations",
        )
        raise check.nothing_to("mutate", finished, "no case to which one of the mutations applies", expected, fix)

    recipe = [_VERSION, settings.only or list(MUTATIONS), settings.n]
    source = ChangedCases(finished, SECTION, "mutated", recipe=recipe, pool=_POOL * settings.n, make=mutants)
    spec = RunSpec.of_changed_cases(finished, source)
    code = check.judge_cases(spec, finished, console)
    if not scored_iterations(spec.folder):
        return code
    figures = selftest_figures(spec.folder, spec.config, source.pairs, settings.expect)
    kept = {"n": settings.n, "tolerance": TOLERANCE}
    document = check.document_of_check(SECTION, finished, spec.folder, kept, **figures)
    check.write_check(spec.folder, SECTION, document, "Self-test", sections(document), console)
    return code if code == Incomplete.exit_code else 0


def draw_mutants(cases: Sequence[Case], names: Iterable[str], n: int) -> list[ChangedCase]:
    """Up to `n` mutants of each mutation, ordered by mutation, then by the draw. Questions come in a random order; a question gives a
    second case only when all have given one. An answer that is missing or declines, and a case that the system failed on, give none:
    there is no claim in it."""
    usable = [case for case in cases if check.is_usable(case)]
    donors = Donors(usable)
    ordered = sorted(usable, key=lambda case: (sha256([check.SEED, case.sample.id]), check.drawn_order(case.key)))
    rounds = [list(group) for _, group in groupby(ordered, key=lambda case: case.sample.id)]
    subjects = [
        Subject(group[place], donors)
        for place in range(max(map(len, rounds), default=0))
        for group in rounds
        if place < len(group)
    ]
    mutants: list[ChangedCase] = []
    for name in names:
        mutated = (_mutant(subject, name) for subject in subjects)
        mutants += islice((mutant for mutant in mutated if mutant is not None), n)
    return mutants


def _mutant(subject: Subject, name: str) -> ChangedCase | None:
    case = subject.case
    edit = MUTATIONS[name][0](subject, random.Random(sha256([check.SEED, name, *case.key[:3]])))
    if edit is None or edit.output == case.output:
        return None
    mutant = check.renamed(case, Case(case.sample, edit.output, case.iteration), name)
    said = {"before": edit.before, "after": edit.after, "in_reference": edit.in_reference}
    return ChangedCase.of(name, case, mutant, **said)


def expected_direction(score: str, expectation: Expectation | None, *, in_reference: bool) -> Direction | None:
    """What a score must do about a mutant; None where nothing is expected. `in_reference`: see `Edit`."""
    named = expectation or {}
    worse = [*named.get("worse", ()), *(named.get("worse_in_reference", ()) if in_reference else ())]
    directions: Mapping[Direction, Iterable[str]] = {"worse": worse, "same": named.get("same", ())}
    matches = (way for way, names in directions.items() if any(fnmatchcase(score, name) for name in names))
    return next(matches, None)


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


def case_floor(values: Values, span: float) -> tuple[float, Literal["iterations", "tolerance"]]:
    """The change of a case's value that the judge's noise alone makes, as a share of the range `span`, and where it is from.

    With s^2 the judge's variance (see `noise_floor`) and r iterations: 1.96 sqrt(2 s^2 / r). With one iteration nothing is known of the
    noise, and the tolerance stands in for it.
    """
    cases = [np.array(case, dtype=np.float64) for case in values.values() if case]
    means = np.array([float(np.mean(case)) for case in cases])
    squares = np.array([float(np.sum((case - np.mean(case)) ** 2)) for case in cases])
    noise = noise_floor(means, squares, np.array([len(case) for case in cases], dtype=np.int64))
    if noise.judge_variance is None or noise.repeats is None:
        return TOLERANCE, "tolerance"
    return normal_quantile(0.95) * math.sqrt(2 * noise.judge_variance / noise.repeats) / span, "iterations"


def score_outcomes(
    score: str,
    values: Values,
    mutants: Sequence[Pair],
    declared: Mapping[str, Any],
    expect: Mapping[str, Expectation],
    floor: float,
) -> Iterator[Outcome]:
    """The outcomes of one score, for every mutant of which something is expected. `declared` has its scale and direction, as
    `metrics.json`; `floor` is the change that counts as none, as a share of the range."""
    low, high, higher_is_better = declared["low"], declared["high"], declared["higher_is_better"]
    span, sign, limit = high - low, 1.0 if higher_is_better else -1.0, max(floor, HAIR)
    for mutant in mutants:
        expected = expected_direction(score, expect.get(mutant.change), in_reference=mutant.in_reference)
        if expected is None:
            continue
        before, after = _mean(values.get(mutant.base)), _mean(values.get(mutant.changed))
        if before is None or after is None:
            yield Outcome(score, mutant, expected, "no_value", before, after)
            continue
        change = sign * (after - before) / span
        room = (before - low if higher_is_better else high - before) / span
        if expected == "worse" and room <= limit:
            yield Outcome(score, mutant, expected, "at_end", before, after, change)
        else:
            is_met = abs(change) <= limit if expected == "same" else change < -limit
            yield Outcome(score, mutant, expected, "as_expected" if is_met else "missed", before, after, change)


def _mean(values: Sequence[float] | None) -> float | None:
    return math.fsum(values) / len(values) if values else None


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
    left_out = {name: sum(outcome.status == name for outcome in outcomes) for name in ("at_end", "no_value")}
    row = {"change": mutation, "score": score, "expected": expected, **_rate(judged), **left_out}
    if not judged:
        return {**row, "mean_change": None, "state": None}
    changes = np.array([outcome.change for outcome in judged], dtype=np.float64)
    questions = check.cluster_numbers(outcome.mutant.base[0] for outcome in judged)
    paired = paired_difference(np.zeros(len(changes)), changes, questions)
    moves = paired.can_decide and paired.interval is not None and not paired.interval.low <= 0 <= paired.interval.high
    state = ("moves" if moves else "stays") if expected == "same" else None
    return {**row, "mean_change": paired.difference, "state": state}


def _rate(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    hits = [outcome.status == "as_expected" for outcome in outcomes]
    return check.rate_json(hits, (outcome.mutant.base[0] for outcome in outcomes))


def rows_by_any_score(outcomes: Iterable[Outcome]) -> list[dict[str, Any]]:
    """One row for each mutation: the share of mutants that at least one score caught, of those that some score could catch."""
    best: dict[str, dict[OutputKey, Outcome]] = {}
    for outcome in outcomes:
        if outcome.expected != "same" and outcome.counts:
            of_mutation = best.setdefault(outcome.mutant.change, {})
            if outcome.mutant.changed not in of_mutation or outcome.status == "as_expected":
                of_mutation[outcome.mutant.changed] = outcome
    return [{"change": name, **_rate(list(of_mutation.values()))} for name, of_mutation in best.items()]


def selftest_figures(
    folder: RunFolder, config: RunConfig, mutants: Sequence[Pair], expect: Mapping[str, Expectation]
) -> dict[str, Any]:
    """The figures of `selftest.json`, from the scored run over originals and mutants. Raises DataError for a table that cannot be read."""
    outcomes: list[Outcome] = []
    floors: dict[str, dict[str, Any]] = {}
    for name, declared in read_json(folder.final.metrics)["declared"].items():
        if declared["low"] is not None and declared["high"] is not None:
            values = check.values_by_output(folder, name)
            limit, source = case_floor(values, declared["high"] - declared["low"])
            floors[name] = {"limit": limit, "source": source}
            outcomes += score_outcomes(name, values, mutants, declared, expect, limit)
    order = {name: place for place, name in enumerate(MUTATIONS)}
    outcomes.sort(key=lambda outcome: order[outcome.mutant.change])
    tried = {outcome.score for outcome in outcomes}
    samples = {name: [mutant.base[0] for mutant in mutants if mutant.change == name] for name in MUTATIONS}
    return {
        "changes": [
            {"name": name, "what": what, "n": len(samples[name]), "questions": len(set(samples[name]))}
            for name, (_, what) in MUTATIONS.items()
        ],
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
    """What is printed and stands in `selftest.md`. A terminal leaves out computed scores that did on all mutants what they must."""
    results, changes = document["results"], document["changes"]
    worse = [*document["any_score"], *(row for row in results if row["expected"] == "worse")]
    caught = [row for change in changes for row in worse if row["change"] == change["name"]]
    drawn = [(Verbatim(row["name"]), row["what"], whole(row["n"]), whole(row["questions"])) for row in changes]
    kept = [_kept(row, document) for row in results if row["n"] and row["expected"] == "same"]
    tables = {
        "Mutants": table(("mutation", "what is done", "mutants", "questions"), drawn, texts=2, shown_in=PAGES),
        "Caught": table(
            ("mutation", "score", "caught", "% [95%]", "left out"), [_caught(row, document) for row in caught], texts=2
        ),
        "Must not change": table(("mutation", "score", "unchanged", "mean change, %", ""), kept, texts=2),
        f"Missed, at most {_MISSED_SHOWN} of each mutation": table(
            ("mutation", "case", "scores", "before", "after"), _missed_rows(document["cases"]), texts=5, shown_in=PAGES
        ),
    }
    notes = {"Caught": (Note(_CAUGHT),), "Must not change": (Note(_KEPT),)}
    result = (Note(_floor_line(document)), Note(_LEFT_OUT, shown_in=TERMINAL), Note(headline(document)))
    return [
        *(Section(title.lower(), title, (part, *notes.get(title, ()))) for title, part in tables.items()),
        Section("result", "Result", result),
    ]  # fmt: skip


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


def _shown_row(cells: Sequence[str], row: Mapping[str, Any], document: Mapping[str, Any]) -> TableRow:
    """A row, on the page alone where it says what everybody expects: a computed score did on all mutants what it must, or none counts."""
    is_plain = row.get("score") in document["computed_scores"] and row["found"] == row["n"]
    score = Verbatim(row["score"]) if "score" in row else "any score"
    return TableRow((Verbatim(row["change"]), score, *cells), shown_in=PAGES if is_plain else EVERYWHERE)


def _caught(row: Mapping[str, Any], document: Mapping[str, Any]) -> TableRow:
    few = " few" if row["interval"] and row["interval"]["too_few"] else ""  # an interval over fewer than five questions
    left_out = whole(row["at_end"] + row["no_value"]) if "score" in row else ""
    return _shown_row((check.found_of(row), percent_with_interval(row) + few, left_out), row, document)


def _kept(row: Mapping[str, Any], document: Mapping[str, Any]) -> TableRow:
    state = "moves" if row["state"] == "moves" else ""
    return _shown_row((check.found_of(row), f"{100 * row['mean_change']:+.1f}", state), row, document)


def _floor_line(document: Mapping[str, Any]) -> str:
    """What counts as a change: the noise floor of each score, or the tolerance that stands in for it."""
    if document["iterations"] == 1:
        return f"noise floor: not known from one iteration; changes up to {TOLERANCE:.1%} of the range count as none. iterations=3 measures it"
    limits = ", ".join(f"{name} {100 * floor['limit']:.1f}%" for name, floor in document["noise_floor"].items())
    return f"noise floor of a case, from {document['iterations']} iterations, in percent of the range: {limits}"


def _missed_rows(cases: Sequence[Mapping[str, Any]]) -> Iterator[TableRow]:
    """The mutants of each mutation that most scores missed, with the text before and after."""
    for _, group in groupby(cases, key=lambda row: row["change"]):
        for row in sorted(group, key=lambda row: -len(row["scores"]))[:_MISSED_SHOWN]:
            scores = ", ".join(
                f"{name} {score['value']:.3g} to {score['mutant_value']:.3g}" for name, score in row["scores"].items()
            )
            names = (row["change"], f"{row['sample_id']} / {row['method']}", scores, row["before"], row["after"])
            yield TableRow(tuple(Verbatim(name) for name in names))

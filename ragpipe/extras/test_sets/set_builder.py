"""From a log to a frozen test set: scan, draw, read what is drawn, strip it, fill the strata, write the folder."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from ragpipe.core.errors import DataError, Problem
from ragpipe.datasets.dataset import Dataset
from ragpipe.datasets.fault_list import Faults
from ragpipe.extras.test_sets.build_settings import BuildSettings
from ragpipe.extras.test_sets.frozen_set import write_frozen_set
from ragpipe.extras.test_sets.log_cases import LogCases, without_outputs
from ragpipe.extras.test_sets.log_scan import SkippedFaults, scan_log
from ragpipe.extras.test_sets.near_duplicates import NearDuplicates
from ragpipe.extras.test_sets.question_draw import DrawPlan, Stratum, plan_draw, samples_of
from ragpipe.extras.test_sets.question_key import question_text
from ragpipe.extras.test_sets.score_values import ScoreReader
from ragpipe.extras.test_sets.set_making import (
    SHOWN_PAIRS,
    FillCounts,
    Making,
    notes_of,
    sentence_of,
    steps_of,
    stratum_row,
)
from ragpipe.extras.test_sets.stripped_case import without_meta, without_personal_data
from ragpipe.schema.sample import Sample

BLANK_LABELS: dict[str, Any] = dict.fromkeys(("category", "subcategory", "answerable"))
BLANK_LABELS |= {"expected": {"behavior": None}, "references": []}
"""What `labels: blank` writes where the log has none, to be filled in."""
_SAMPLE_FIELDS = frozenset(Sample.model_fields)


@dataclass(frozen=True)
class BuiltSet:
    """A frozen set that was written: its hash, its card, and what went otherwise than wanted, in sentences."""

    sha256: str
    card: dict[str, Any]
    notes: list[str]


def build_test_set(
    dataset: Dataset, settings: BuildSettings, scores: ScoreReader | None, *, chunk_text: list[str] | None
) -> BuiltSet:
    """Draw a test set from a log and freeze it. The same log, settings and seed give the same hash, whatever the order of the lines.

    Args:
        dataset: the log, with its mapping and filter.
        settings: how many, how, and what is done with the cases. It has a seed.
        scores: the values of `settings.score`; None where the draw needs none.
        chunk_text: `dataset.chunk_text`.

    Raises DataError for records that cannot be used (unless they are skipped), for quotas of values that do not occur, and where
    nothing is left; ConfigError where the folder is not empty; OutputError.
    """
    faults = _faults_of(dataset, settings)
    scan = scan_log(dataset, faults, settings.by, scores)
    if not len(scan):
        actual = f"{scan.records:,} records, of which none passes the filter" if scan.filtered else "no record"
        raise DataError(faults.title, [Problem(dataset.name, "records", actual, "at least one case")])
    samples = samples_of(scan, settings)
    plan = plan_draw(samples, scan, settings)
    drawn = LogCases(dataset, scan, samples, plan, faults)
    filler = _Filler(drawn, settings, dataset.name, chunk_text)
    cases = filler.fill(plan)
    faults.raise_all()
    counts = filler.counts
    _refuse_unknown_meta(settings, counts, cases)
    making = Making(settings, scan, len(samples.starts), plan, counts, faults)
    notes = notes_of(making)
    card = {
        "made": sentence_of(dataset.name, settings),
        "seed": settings.seed,
        "steps": steps_of(making),
        "strata": [stratum_row(stratum, counts, settings) for stratum in plan.strata] if settings.by else [],
        "near_duplicates": counts.near_pairs,
        "personal_data": dict(sorted(counts.replaced.items())),
        "notes": notes,
        "settings": settings.model_dump(exclude={"dir", "seed"}, exclude_defaults=True),
        "sources": dataset.sources(),
    }
    digest = write_frozen_set(Path(settings.dir), cases, card)
    return BuiltSet(digest, card, notes)


def _faults_of(dataset: Dataset, settings: BuildSettings) -> Faults:
    title = f"data set {dataset.name!r}: no test set can be built from it"
    if settings.faults == "skip":
        return SkippedFaults(title)
    return Faults(title, lambda: "; build.faults=skip leaves such records out and counts them")


class _Filler:
    """Takes candidates until the strata are full."""

    def __init__(self, drawn: LogCases, settings: BuildSettings, source: str, chunk_text: list[str] | None):
        self._drawn, self._settings, self._source, self._chunk_text = drawn, settings, source, chunk_text
        self._near = NearDuplicates(settings.near) if settings.near is not None else None
        self.counts = FillCounts()

    def fill(self, plan: DrawPlan) -> list[dict[str, Any]]:
        """The cases of all strata, each filled to its quota; without quotas of the user's, what a stratum lacks others give."""
        streams = {stratum.name: self._usable(stratum) for stratum in plan.strata}
        cases: dict[str, list[dict[str, Any]]] = {stratum.name: [] for stratum in plan.strata}
        for stratum in plan.strata:
            for _ in range(stratum.quota):
                self._take(stratum.name, streams, cases)
        if self._settings.quotas is None and self._settings.size is not None:
            self._refill(streams, cases)
        return list(chain.from_iterable(cases.values()))

    def _refill(self, streams: dict[str, Iterator[dict[str, Any]]], cases: dict[str, list[dict[str, Any]]]) -> None:
        """One case more of each stratum in turn, until there are enough or no candidate is left."""
        size = self._settings.size or 0
        while streams and self.counts.taken.total() < size:
            for name in list(streams):
                if self.counts.taken.total() < size:
                    self._take(name, streams, cases)

    def _take(
        self, name: str, streams: dict[str, Iterator[dict[str, Any]]], cases: dict[str, list[dict[str, Any]]]
    ) -> None:
        """Move the next usable case of a stratum, if there is one; an exhausted stream is removed."""
        case = next(streams[name], None) if name in streams else None
        if case is None:
            streams.pop(name, None)
            return
        cases[name].append(case)
        self.counts.taken[name] += 1

    def _usable(self, stratum: Stratum) -> Iterator[dict[str, Any]]:
        """The candidates of a stratum that may be taken, in order, as they are written."""
        settings = self._settings
        for candidate in stratum.candidates:
            case = self._drawn.case_of(int(candidate), self._chunk_text)
            if case is None:
                continue
            if settings.answers == "drop":
                case = without_outputs(case, _SAMPLE_FIELDS)
            case, dropped = without_meta(case, settings.drop_meta)
            replaced: Counter[str] = Counter()
            if settings.personal_data != "keep":
                case, replaced = without_personal_data(case)
                if replaced and settings.personal_data == "drop":
                    self.counts.with_personal_data += 1
                    continue
            if self._is_near(case):
                continue
            self.counts.with_personal_data += bool(replaced)
            self.counts.replaced.update(replaced)
            self.counts.meta_dropped.update(dropped)
            yield _with_origin(case, self._source, settings)

    def _is_near(self, case: Mapping[str, Any]) -> bool:
        """Whether the case is a near duplicate of one that is kept; then it is counted, and the first pairs are kept for the card."""
        text = question_text(case)
        before = self._near.kept_before(text) if self._near is not None else None
        if before is None:
            return False
        self.counts.near += 1
        if len(self.counts.near_pairs) < SHOWN_PAIRS:
            self.counts.near_pairs.append({"dropped": text, "kept": before})
        return True


def _with_origin(case: Mapping[str, Any], source: str, settings: BuildSettings) -> dict[str, Any]:
    """The case with where it comes from in `meta.origin` (unless it says so already), and with its labels to fill in."""
    meta = dict(case.get("meta") or {})
    meta.setdefault("origin", {"kind": "log", "source": source, "seed": settings.seed})
    blank = (
        {name: value for name, value in BLANK_LABELS.items() if name not in case} if settings.labels == "blank" else {}
    )
    return {**case, **blank, "meta": meta}


def _refuse_unknown_meta(settings: BuildSettings, counts: FillCounts, cases: list[dict[str, Any]]) -> None:
    """Raises DataError for a name to drop that no case has: it is misspelt, and the data would stay."""
    known = sorted({name for case in cases for name in case["meta"]} - {"origin"})
    problems = [
        Problem(
            "build.drop_meta",
            name,
            "no drawn case has it under `meta`",
            f"a name under `meta`: {', '.join(known) or 'none'}",
            "correct it, or leave it out",
        )
        for name in settings.drop_meta
        if not counts.meta_dropped[name]
    ]
    if problems and cases:
        raise DataError("what is to be dropped is not there; nothing was written", problems)

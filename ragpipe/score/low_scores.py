"""`low_scores.json`: for each score how many cases are low and how low, examples, where they cluster, why, what to do, and what one
version of the system repaired or broke.

Counts and clusters are worked out from the ledger in the end; of the cases themselves only the examples are kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic_core import from_json

from ragpipe.core.score import ScoreSpec
from ragpipe.score.accumulators import OTHER, Accumulators
from ragpipe.score.case_blocks import GrowingArray
from ragpipe.score.conditions import Facts
from ragpipe.score.diagnosis import share
from ragpipe.score.normalisation import OK, OVERALL, Column
from ragpipe.score.settings import NOT_LOW, Bands, LowScoreBand, LowScoreSettings
from ragpipe.store.run_tables import columns_at

_REASON_CHARS = 200
_DISTINCT = 2000  # reasons told apart per score; judges rarely use the same words twice
_GROUPS = 10  # of one field, the largest lift first
_MIN_CASES, _MIN_LIFT = 3, 1.25  # low cases, and their share over that of all cases, from which a group is named
_EXAMPLES, _REASONS = 5, 5  # listed with each band, and with each score
_NAMED = 100  # questions that a version repaired, or broke
_UNKNOWN, _FINE, _LOW = -1, 0, 1
FLAGS = "flags"
"""What is read of the details of a score: a list of texts."""
_FLAGGED = f'"{FLAGS}":["'  # details are canonical JSON: without it there is no flag to read


class _Low:
    """One score so far: its band by case, examples by band, counts of reasons and flags among the low cases."""

    def __init__(self, bands: Sequence[LowScoreBand]):
        self.bands = bands
        self.of_case = GrowingArray(np.int8)
        self.examples: list[list[dict[str, Any]]] = [[] for _ in bands]
        self.reasons, self.flags = Counter[str](), Counter[str]()


def _count(counts: Counter[str], text: str, n: int = 1) -> None:
    """In bounded memory: a text beyond the limit is not counted."""
    if text in counts or len(counts) < _DISTINCT:
        counts[text] += n


class LowScores:
    """The low scores of all cases so far. `judged` are the scores that pass or fail."""

    def __init__(self, specs: Sequence[ScoreSpec], settings: LowScoreSettings, judged: Collection[str]):
        self._settings = settings
        # the overall score says little about what to fix: only with bands of its own
        self._specs = {spec.name: spec for spec in (*specs, *([OVERALL] if OVERALL.name in settings.bands else []))}
        bands_by_score = {name: settings.of(spec, judged=name in judged) for name, spec in self._specs.items()}
        self._scores = {name: _Low(bands) for name, bands in bands_by_score.items() if bands}

    def add(self, facts: Facts) -> None:
        for name, low in self._scores.items():
            column = facts.columns[name]
            bands = self._settings.band_of(self._specs[name], column)
            low.of_case.add(bands)
            bands = np.where(_is_low(bands, low.bands), bands, NOT_LOW)  # the other bands are counted, and no more
            self._add_examples(low, bands, column, facts)
            _add_reasons(low, bands, column)
            if name in facts.measured:
                _add_flags(low, bands, name, facts)

    def document(self, ledger: Accumulators, samples: Path) -> dict[str, Any]:
        """`scores` of `low_scores.json`; the ledger must be closed, `samples` is the run's table. Scores without a value are left
        out."""
        scores, versions = {}, _Versions(ledger, samples)
        for name, low in self._scores.items():
            bands = low.of_case.array()
            of_score = ledger.overall if name == OVERALL.name else ledger.scores[name]
            measured = np.flatnonzero(of_score.status == OK)
            if len(measured):
                scores[name] = self._score(self._specs[name], low, bands, measured, ledger)
                scores[name] |= versions.of(measured, _is_low(bands, low.bands))
        return scores

    def _add_examples(self, low: _Low, bands: Bands, column: Column, facts: Facts) -> None:
        for number, examples in enumerate(low.examples):
            for place in np.flatnonzero(bands == number)[: _EXAMPLES - len(examples)].tolist():
                reason = column.reasons[place].as_py()
                line = None if reason is None else " ".join(reason.split())[:_REASON_CHARS]
                examples.append({**facts.key(place), "value": float(column.values[place]), "reason": line})

    def _score(self, spec: ScoreSpec, low: _Low, bands: Bands, measured: Any, ledger: Accumulators) -> dict[str, Any]:
        is_low = _is_low(bands, low.bands)
        n, n_low = len(measured), int(np.count_nonzero(is_low))
        return {
            "low": spec.low,
            "high": spec.high,
            "higher_is_better": spec.higher_is_better,
            "n_ok": n,
            "n_low": n_low,
            "share": share(n_low, n),
            "bands": [
                {
                    "name": band.name,
                    "up_to": band.up_to,
                    "low": band.low,
                    "n": (count := int(np.count_nonzero(bands == number))),
                    "share": share(count, n),
                    "advice": band.advice,
                    "examples": low.examples[number],
                }
                for number, band in enumerate(low.bands)
            ],
            "patterns": {
                field: groups for field in self._settings.by if (groups := self._groups(field, is_low, measured, ledger))
            },
            "reasons": [{"reason": text, "n": n} for text, n in low.reasons.most_common(_REASONS) if n > 1],
            "flags": dict(low.flags.most_common(_REASONS)),
        }

    def _groups(self, field: str, low: Any, measured: Any, ledger: Accumulators) -> list[dict[str, Any]]:
        """The groups of a field in which low cases are more frequent than among all, the largest lift first."""
        cases, codes = ledger.pairs[field]
        has_value = np.zeros(ledger.n, dtype=np.bool_)
        has_value[measured] = True
        inside = has_value[cases]
        names = ledger.fields[field].names
        n = np.bincount(codes[inside], minlength=len(names))
        n_low = np.bincount(codes[inside & low[cases]], minlength=len(names))
        base = np.count_nonzero(low) / len(measured)
        groups = [
            {"value": name, "n_low": int(k), "n": int(m), "share": k / m, "lift": k / m / base}
            for name, k, m in zip(names, n_low.tolist(), n.tolist(), strict=True)
            if name != OTHER  # values beyond the memory's limit have nothing in common
            and k >= _MIN_CASES
            and k / m / base >= _MIN_LIFT
        ]
        return sorted(groups, key=lambda group: (-group["lift"], -group["n_low"]))[:_GROUPS]


class _Versions:
    """The outputs by version, else by method: each version against the one before, each method against the first."""

    def __init__(self, ledger: Accumulators, samples: Path):
        self._ledger, self._samples = ledger, samples
        self._field = next((name for name in ("version", "method") if len(ledger.fields[name].names) > 1), "")

    def of(self, measured: Any, low: Any) -> dict[str, Any]:
        """`versions` of a score, whose cases with a value are `measured`; empty where nothing tells versions apart."""
        if not self._field:
            return {}
        cases, codes = self._ledger.pairs[self._field]
        names = self._ledger.fields[self._field].names
        states = []
        for code in range(len(names)):
            state = np.full(int(self._ledger.samples.max()) + 1, _UNKNOWN, dtype=np.int8)
            chosen = np.intersect1d(cases[codes == code], measured)
            state[self._ledger.samples[chosen]] = _FINE
            state[self._ledger.samples[chosen[low[chosen]]]] = _LOW
            states.append(state)
        pairs = [(0 if self._field == "method" else code - 1, code) for code in range(1, len(names))]
        changes = [{"from": names[old], "to": names[new], **self._change(states[old], states[new])} for old, new in pairs]
        return {"versions": {"field": self._field, "changes": [change for change in changes if change["n_both"]]}}

    def _change(self, before: Any, after: Any) -> dict[str, Any]:
        both = (before != _UNKNOWN) & (after != _UNKNOWN)
        return {
            "n_both": int(np.count_nonzero(both)),
            "low_before": int(np.count_nonzero(both & (before == _LOW))),
            "low_after": int(np.count_nonzero(both & (after == _LOW))),
            "repaired": self._questions(both & (before == _LOW) & (after == _FINE)),
            "broke": self._questions(both & (before == _FINE) & (after == _LOW)),
        }

    def _questions(self, flags: Any) -> dict[str, Any]:
        places = np.flatnonzero(flags)
        names = columns_at(self._samples, places[:_NAMED], ["id"])["id"].to_pylist() if len(places) else []
        return {"n": len(places), "samples": names}


def _is_low(of_case: Bands, bands: Sequence[LowScoreBand]) -> Any:
    return np.isin(of_case, [number for number, band in enumerate(bands) if band.low])


def _add_reasons(low: _Low, bands: Bands, column: Column) -> None:
    """Reasons are alike when they differ only in case, numbers, quoted words and blanks."""
    texts = column.reasons.filter(pa.array(bands != NOT_LOW)).drop_null()
    for pattern, put in ((r'"[^"]*"|\x{201c}[^\x{201d}]*\x{201d}', '"..."'), (r"\d+(?:[.,]\d+)*", "#"), (r"\s+", " ")):
        texts = pc.replace_substring_regex(texts, pattern=pattern, replacement=put)
    texts = pc.utf8_slice_codeunits(pc.utf8_lower(pc.utf8_trim_whitespace(texts)), 0, _REASON_CHARS)
    for pair in pc.value_counts(texts).to_pylist():
        if pair["values"]:
            _count(low.reasons, pair["values"], pair["counts"])


def _add_flags(low: _Low, bands: Bands, name: str, facts: Facts) -> None:
    _, texts = facts.detail_rows(name, FLAGS, bands != NOT_LOW)
    for text in texts:
        if _FLAGGED in text:
            flags = from_json(text).get(FLAGS)
            for flag in flags if isinstance(flags, list) else ():
                if isinstance(flag, str):
                    _count(low.flags, flag)

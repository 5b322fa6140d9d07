"""One comparison core: candidates against a base over the cases that they share, as the document `comparison.json`.

`task=compare`, methods of a run, sweeps, rejudging and gates all read their figures from here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ragpipe.comparison.headline import comparison_verdict, headline_scores, shares_of_parts
from ragpipe.comparison.preference import preference_document, strengths
from ragpipe.comparison.run_differences import MUST_MATCH, ChangedKey, drift_differences, refused_parts, setting_differences
from ragpipe.comparison.score_differences import (
    OPERATIONS,
    SIDES,
    PairedScore,
    interval_document,
    paired_operations,
    paired_score,
    typical_figures,
)
from ragpipe.comparison.settings import FALSE_SLICES, CompareSettings
from ragpipe.comparison.side import TITLE, EqualAnswers, Modes, Pairs, Side, data_differences, paired_cases, side_of
from ragpipe.core.errors import ConfigError, Problem
from ragpipe.core.sample import OUTPUT_KEY, Sample
from ragpipe.core.version import FORMAT
from ragpipe.data.index_manifest import IndexCoverage, gold_documents, read_index
from ragpipe.score.case_blocks import RetrievedChunks
from ragpipe.score.iterations import cases_of, open_records
from ragpipe.score.normalisation import OVERALL
from ragpipe.stats.difference_verdict import DifferenceVerdict, benjamini_hochberg, decide_together, tested
from ragpipe.stats.intervals import estimate_rate
from ragpipe.store.run_folder import RunFolder
from ragpipe.store.run_tables import batches, read_columns
from ragpipe.store.table_rows import INDEX, SAMPLES, sample_from, sample_json, table_schema

Floats = NDArray[np.float64]
Whole = NDArray[np.int64]

_SCALE = ("low", "high", "higher_is_better")
_KEYS = 4  # keys of a part that differs which are named


@dataclass(frozen=True)
class Comparison:
    """A candidate against the base: the entry of `comparison.json`, the shared cases and their scores."""

    document: dict[str, Any]
    pairs: Pairs
    scores: Sequence[PairedScore]


def compare_sides(
    base: Side, candidates: Sequence[Side], settings: CompareSettings, preferences: Sequence[Side | None] = ()
) -> list[Comparison]:
    """Compare each candidate with the base. `preferences` are the runs in which a judge chose between their answers, as far as there are.

    Raises ConfigError where a candidate differs in what is not accepted, and for a smallest effect of a score that no side has.
    """
    differences = [_differences(base, candidate) for candidate in candidates]
    problems = _unknown_effects([base, *candidates], settings)
    for each in zip(candidates, differences, strict=True):
        problems += _refusals(base, *each, settings)
    if problems:
        raise ConfigError(TITLE, problems)
    measured = [_measured(base, *each, settings) for each in zip(candidates, differences, strict=True)]
    modes = [Modes.of(side) for side in (base, *candidates)]
    of_modes = [_measured(modes[0], own, of_own, settings) for own, of_own in zip(modes[1:], differences, strict=True)]
    comparisons = []
    for number, (candidate, own, of_own) in enumerate(zip(candidates, measured, of_modes, strict=True)):
        found = _mode_documents(modes[0], modes[number + 1], of_own, _beside(of_own, of_modes))
        asked = preferences[number] if preferences else None
        chosen = None if asked is None else preference_document(asked, base, candidate, own.pairs, settings.level)
        comparisons.append(_comparison(number, base, candidate, own, _beside(own, measured), found, chosen))
    return comparisons


def comparison_document(
    kind: Literal["runs", "methods"],
    base: Side,
    candidates: Sequence[Side],
    comparisons: Sequence[Comparison],
    settings: CompareSettings,
    preferences: Sequence[tuple[Side, Side, Side, Pairs]] = (),
) -> dict[str, Any]:
    """`comparison.json`, from what `compare_sides` says of the candidates; `kind` is what the sides are, `preferences` the pairs of sides
    that a judge was asked about, as `strengths` takes them."""
    headline = dict.fromkeys(
        name for item in comparisons for name, score in item.document["scores"].items() if score["headline"]
    )
    return {
        "format": FORMAT,
        "kind": kind,
        "base": base.document(),
        "candidates": [candidate.document() for candidate in candidates],
        "settings": settings.model_dump(mode="json", exclude={"preference"}),
        "headline": list(headline),
        **({"strengths": found} if (found := strengths(preferences, [base, *candidates], settings.level)) else {}),
        "comparisons": [item.document for item in comparisons],
    }


def paired_scores(base: Side, candidate: Side, pairs: Pairs, equal: EqualAnswers | None = None) -> Iterator[PairedScore]:
    """Every score that both sides declare with the same scale and direction, one at a time, the overall score first."""
    other = _other_scales(base, candidate)
    shared = [name for name in candidate.declared if name in base.declared and name not in other]
    for name in sorted(shared, key=lambda name: name != OVERALL.name):
        yield paired_score(name, base, candidate, pairs, equal)


def _other_scales(base: Side, candidate: Side) -> list[str]:
    """The scores of both sides that have another scale or direction."""
    shared = [name for name in candidate.declared if name in base.declared]
    pairs = {name: (base.declared[name], candidate.declared[name]) for name in shared}
    return [name for name, (old, new) in pairs.items() if any(old[key] != new[key] for key in _SCALE)]


def _differences(base: Side, candidate: Side) -> list[ChangedKey]:
    if base.folder == candidate.folder:
        return []
    manifests, alarms = (base.manifest, candidate.manifest), [*base.judge_alarms, *candidate.judge_alarms]
    drift = drift_differences(*manifests, alarms)
    return [*data_differences(base, candidate), *setting_differences(*manifests), *drift]


def _refusals(base: Side, candidate: Side, differences: Sequence[ChangedKey], settings: CompareSettings) -> list[Problem]:
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
    known = {*OPERATIONS, *(name for side in sides for name in (*side.declared, *Modes.of(side).declared))}
    problems = []
    for name in settings.smallest_effect:
        if name not in known:
            near = get_close_matches(name, sorted(known), 1)
            fix = f"did you mean {near[0]}?" if near else ""
            expected = f"one of {', '.join(sorted(known))}"
            problems.append(Problem("command line", f"compare.smallest_effect.{name}", "no score", expected, fix))
    return problems


@dataclass(frozen=True)
class _Measured:
    """A candidate's shared cases and scores, each with its own verdict."""

    differences: Sequence[ChangedKey]
    settings: CompareSettings
    pairs: Pairs
    scores: Sequence[PairedScore]
    headline: Sequence[str]
    verdicts: Mapping[str, DifferenceVerdict | None]

    def tested(self) -> list[float | None]:
        """The p-values of its headline scores, which are decided with those of the other candidates."""
        return [tested(verdict) for name in self.headline if (verdict := self.verdicts[name]) is not None]


def _beside(own: _Measured, all_of_them: Sequence[_Measured]) -> list[float | None]:
    return [p for other in all_of_them if other is not own for p in other.tested()]


def _measured(base: Side, candidate: Side, differences: Sequence[ChangedKey], settings: CompareSettings) -> _Measured:
    pairs = paired_cases(base.cases, candidate.cases)
    judged_alike = not any(item.part in MUST_MATCH and item.key != "samples" for item in differences)
    equal = EqualAnswers(base, candidate, pairs) if judged_alike else None
    scores = list(paired_scores(base, candidate, pairs, equal))
    headline = candidate.headline(base, [score.name for score in scores])
    verdicts = {score.name: score.decided(settings) for score in scores}
    return _Measured(differences, settings, pairs, scores, headline, verdicts)


def _comparison(
    number: int,
    base: Side,
    candidate: Side,
    measured: _Measured,
    beside: Sequence[float | None],
    modes: Mapping[str, Mapping[str, Any]],
    preference: Mapping[str, Any] | None,
) -> Comparison:
    """`beside`: the p-values of the other candidates; `modes`: what is said of the failure modes; `preference`: what a judge chose."""
    differences, settings, pairs = measured.differences, measured.settings, measured.pairs
    scores, headline = measured.scores, measured.headline
    documents = _score_documents(base, candidate, measured, beside)
    operations = {
        score.name: {**score.document(score.decided(settings)), "typical": typical_figures(score)}
        for score in paired_operations(base, candidate, pairs)
    }
    chosen = [score for score in scores if score.name in headline]
    slices = slice_differences(base, candidate, pairs, chosen, settings)
    document = {
        "candidate": number,
        "differs": [
            {**item._asdict(), "accepted": item.part not in MUST_MATCH or item.part in settings.accept} for item in differences
        ],
        "cases": {
            "both": len(pairs),
            "only_base": pairs.only_base,
            "only_candidate": pairs.only_candidate,
            "questions": len(np.unique(pairs.questions)),
        },
        "decided_together": sum(p is not None for p in (*measured.tested(), *beside)),
        "only_base_scores": [name for name in base.declared if name not in candidate.declared],
        "only_candidate_scores": [name for name in candidate.declared if name not in base.declared],
        "other_scale": _other_scales(base, candidate),
        "verdict": comparison_verdict(documents, operations, slices, refused_parts(differences, ()), modes, preference),
        "scores": documents,
        "slices": slices,
        "failure_modes": modes,
        "operations": operations,
        "index": index_differences(base, candidate, pairs, scores),
        "flips": _flips(scores, pairs),
        **({"preference": preference} if preference else {}),
    }
    return Comparison(document, pairs, scores)


def _score_documents(
    base: Side, candidate: Side, measured: _Measured, beside: Sequence[float | None]
) -> dict[str, dict[str, Any]]:
    """The scores, the headline first, decided together with those of other candidates (`beside`)."""
    headline, verdicts = measured.headline, measured.verdicts
    together = {name: verdict for name in headline if (verdict := verdicts[name]) is not None}
    decided = decide_together(list(together.values()), level=measured.settings.level, beside=beside)
    verdicts = {**verdicts, **dict(zip(together, decided, strict=True))}
    by_name = {score.name: score for score in measured.scores}
    documents = {}
    for name in [*headline, *(name for name in by_name if name not in headline)]:
        documents[name] = by_name[name].document(verdicts[name], headline=name in headline)
        documents[name]["parts"] = shares_of_parts(name, base.metrics, candidate.metrics)
    return documents


def _mode_documents(
    base: Side, candidate: Side, measured: _Measured, beside: Sequence[float | None]
) -> dict[str, dict[str, Any]]:
    """The failure modes that both sides can decide, as scores, with cases, rates, flips and slices where they differ."""
    documents, pairs = _score_documents(base, candidate, measured, beside), measured.pairs
    flips = _flips(measured.scores, pairs)
    for score in measured.scores:
        found, places = documents[score.name], np.flatnonzero(score.measured)
        for side, values, passed in zip(SIDES, (score.base, score.candidate), score.passed(), strict=True):
            rate = estimate_rate(values[places], pairs.questions[places], level=measured.settings.level)
            found |= {
                f"{side}_n": int(np.count_nonzero(passed[places] == 0)),
                f"{side}_interval": interval_document(rate.interval),
            }
        found |= {"flips": flips.get(score.name, {"to_passed": [], "to_failed": []}), "slices": []}
    decided = [score for score in measured.scores if documents[score.name]["state"] in ("better", "worse")]
    for row in slice_differences(base, candidate, pairs, decided, measured.settings):
        documents[row["score"]]["slices"].append(row)
    return documents


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


def slice_differences(
    base: Side, candidate: Side, pairs: Pairs, scores: Sequence[PairedScore], settings: CompareSettings
) -> list[dict[str, Any]]:
    """One row per slice and score: difference, interval, and whether it is better or worse. Slices are the breakdowns of the
    candidate's `metrics.json` that the base has too.

    `better` and `worse` hold where the q-value of Benjamini and Hochberg over all slices and scores is at most
    `FALSE_SLICES`; slices in which fewer than 6 questions changed cannot decide and are no part of that count. A field with
    one value only is left out. A case with several tags is in several slices.
    """
    one_method = len(candidate.methods) == 1
    fields = {
        name: groups
        for name, groups in candidate.metrics["by"].items()
        if name in base.metrics["by"] and not (one_method and "method" in name.split("*"))
    }
    compared = [
        (*one, score) for one in _paired_slices(candidate.groups(fields), pairs, len(candidate.rows)) for score in scores
    ]
    rows = [row for one in compared if (row := _row(*one, settings))]
    for row, q_value in zip(rows, benjamini_hochberg([row["p_value"] for row in rows]), strict=True):
        row["q_value"] = q_value
        if row["state"] in ("better", "worse") and (q_value is None or q_value > FALSE_SLICES):
            row["state"] = "inconclusive"
    return rows


def _row(field: str, value: str, places: Whole, score: PairedScore, settings: CompareSettings) -> dict[str, Any] | None:
    verdict = score.decided(settings, places)
    if verdict is None:
        return None
    paired, chosen = verdict.paired, places[score.measured[places]]
    return {
        "field": field,
        "value": value,
        "score": score.name,
        "n": paired.n,
        "questions": paired.clusters,
        "base_mean": float(np.mean(score.base[chosen])),
        "candidate_mean": float(np.mean(score.candidate[chosen])),
        "difference": paired.difference,
        "interval": interval_document(paired.interval),
        "p_value": paired.p_value if paired.can_decide else None,
        "q_value": None,
        "state": verdict.state,
    }


def _paired_slices(by_field: Mapping[str, Mapping[str, Whole]], pairs: Pairs, n_cases: int) -> Iterator[tuple[str, str, Whole]]:
    """(field, value, places among the pairs) of every group of the candidate's cases; none of a field that has one alone."""
    pair_of_case = np.full(n_cases, -1, dtype=np.int64)
    pair_of_case[pairs.candidate] = np.arange(len(pairs))
    for field, groups in by_field.items():
        slices = {value: pair_of_case[cases] for value, cases in groups.items()}
        slices = {value: np.sort(places[places >= 0]) for value, places in slices.items()}
        slices = {value: places for value, places in slices.items() if len(places)}
        if len(slices) > 1:
            yield from ((field, value, places) for value, places in slices.items())


_COLUMNS = (
    ("comparison", pa.int64(), "number of the candidate, from 0, as in comparison.json"),
    ("sample_id", pa.string(), "the sample's id"),
    ("method", pa.string(), "the method, as the candidate names it"),
    ("repeat", pa.int64(), "which output of this method for this sample, from 1"),
    ("score", pa.string(), "the score's name"),
    ("base", pa.float64(), "value of the base in the native scale, mean over its iterations; null = none"),
    ("candidate", pa.float64(), "value of the candidate"),
    ("difference", pa.float64(), "candidate - base; null where one of them has no value"),
    ("base_passed", pa.bool_(), "whether more than half of the base's verdicts passed; null = no verdict, or half"),
    ("candidate_passed", pa.bool_(), "the same of the candidate"),
)
COMPARED_CASES_SCHEMA = table_schema(*_COLUMNS)  # of comparison.parquet


def compared_cases(comparisons: Sequence[Comparison]) -> Iterator[pa.Table]:
    """The rows, one score of one comparison at a time. A case without a value on either side has no row."""
    for number, comparison in enumerate(comparisons):
        for score in comparison.scores:
            yield _rows(number, comparison, score)


def _rows(number: int, comparison: Comparison, score: PairedScore) -> pa.Table:
    places = np.flatnonzero(np.isfinite(score.base) | np.isfinite(score.candidate))
    keys = comparison.pairs.cases.take(pa.array(places))
    before, after = (verdicts[places] for verdicts in score.passed())
    columns = {
        "comparison": pa.array(np.full(len(places), number)),
        **{name: keys[name] for name in keys.column_names},
        "score": pa.repeat(score.name, len(places)),
        "base": _numbers(score.base[places]),
        "candidate": _numbers(score.candidate[places]),
        "difference": _numbers((score.candidate - score.base)[places]),
        "base_passed": _flags(before),
        "candidate_passed": _flags(after),
    }
    return pa.table([columns[name] for name in COMPARED_CASES_SCHEMA.names], schema=COMPARED_CASES_SCHEMA)


def _numbers(values: Floats) -> pa.Array:
    return pa.array(values, mask=~np.isfinite(values))


def _flags(verdicts: Floats) -> pa.Array:
    return pa.array(verdicts == 1, mask=~np.isfinite(verdicts))


def method_differences(folder: RunFolder, records: Sequence[Path], metrics: Mapping[str, Any]) -> dict[str, Any] | None:
    """`base`, the first method in the data, and `candidates`: for each other method its headline scores against the base, over the
    cases that both have, as `task=compare compare=methods` has them in `comparison.json`; `slices`: of each the slices of the first of
    these scores.

    `records` are the tables of the iterations that `metrics` is of; intervals have its level. None where there is one method only, or
    no headline score. Raises DataError for tables that do not fit together.
    """
    headline = headline_scores(metrics, metrics, list(metrics["declared"]))
    if len(metrics["by"].get("method", {})) < 2 or not headline:
        return None
    cases = cases_of(records).names
    settings = CompareSettings(level=metrics["scoring"]["level"])
    chosen = {**metrics, "declared": {name: metrics["declared"][name] for name in headline}}
    documents, slices = {}, {}
    with open_records(records, headline) as tables:
        methods = pc.unique(cases["method"]).to_pylist()
        base, *others = (side_of(folder, method, {}, chosen, tables, cases) for method in methods)
        measured = [_measured(base, side, (), settings) for side in others]
        for method, side, own in zip(methods[1:], others, measured, strict=True):
            documents[method] = _score_documents(base, side, own, _beside(own, measured))
            slices[method] = slice_differences(base, side, own.pairs, own.scores[:1], settings)
    return {"base": methods[0], "candidates": documents, "slices": slices}


_LISTED = 100  # documents named
_RECALL = re.compile(r"recall@(\d+)")
_VERSIONS = ("chunkers", "embeddings", "index_versions")
_Documents = Mapping[str, Mapping[str, Any]]


def index_differences(base: Side, candidate: Side, pairs: Pairs, scores: Sequence[PairedScore]) -> dict[str, Any] | None:
    """`index` of a comparison: the indexes of both runs by their manifests; None where a run has none, or both are the same.

    A document is in an index where it has a chunk there. `chunk_size` is the mean in tokens, or in characters of the retrieved chunks
    where a manifest has no tokens. `gold` counts the documents that labels of the shared samples name. Raises DataError.
    """
    before, after = (read_index(side.folder.index) for side in (base, candidate))
    if base.folder == candidate.folder or before is None or after is None:
        return None
    old, new = (_documents(side) for side in (base, candidate))
    if old == new and all(getattr(before, name) == getattr(after, name) for name in _VERSIONS):
        return None
    found, now = ({name for name, row in rows.items() if row["chunks"]} for rows in (old, new))
    gone, come, named = found - now, now - found, _named_gold(candidate, pairs, old, new)
    lost = [{"document": name, "n_samples": len(ids), "samples": ids[:_LISTED]} for name, ids in named.items() if name in gone]
    changed = [name for name in found & now if any(old[name][key] != new[name][key] for key in ("chunks", "tokens"))]
    return {
        "documents": {
            "base": len(found),
            "candidate": len(now),
            **_listed("lost", [name for name in old if name in gone]),
            **_listed("new", [name for name in new if name in come]),
            "n_rechunked": len(changed),
        },
        "chunks": {"base": before.overall.chunks_embedded, "candidate": after.overall.chunks_embedded},
        "chunk_size": _chunk_size((before, after), (base, candidate)),
        "versions": {name: [getattr(before, name), getattr(after, name)] for name in _VERSIONS},
        "gold": {
            "n": len(named),
            "n_lost": sum(name in gone for name in named),
            "n_found": sum(name in come for name in named),
            "lost": lost[:_LISTED],
        },
        "recall": _recall(pairs, scores, _types(named, old, new)),
    }


def _documents(side: Side) -> dict[str, dict[str, Any]]:
    return {row["document"]: row for row in read_columns(side.folder.index_documents, INDEX.names).to_pylist()}


def _listed(word: str, names: Sequence[str]) -> dict[str, Any]:
    return {f"n_{word}": len(names), word: list(names[:_LISTED])}


def _named_gold(side: Side, pairs: Pairs, old: _Documents, new: _Documents) -> dict[str, list[str]]:
    """By document the shared samples whose labels name it."""
    paths = {path: name for rows in (old, new) for name, row in rows.items() for path in row["rel_paths"]}
    shared = set(pairs.cases["sample_id"].to_pylist())
    return gold_documents((sample for sample in _samples(side) if sample.id in shared), paths)


def _samples(side: Side) -> Iterator[Sample]:
    labels = [name for name in SAMPLES.names if name in ("id", "question", "relevant_docs", "anchors")]
    for batch in batches(side.folder.samples, labels):
        yield from (sample_from(sample_json(row)) for row in batch.to_pylist())


def _chunk_size(indexes: Sequence[IndexCoverage], sides: Sequence[Side]) -> dict[str, Any]:
    tokens = [index.tokens.mean for index in indexes if index.tokens]
    unit, sizes = ("tokens", tokens) if len(tokens) == len(sides) else ("characters", [_characters(side) for side in sides])
    return {"unit": unit, "base": sizes[0], "candidate": sizes[1]}


def _characters(side: Side) -> float | None:
    """The mean length of the retrieved chunks; None where none has a text."""
    total = count = 0
    for batch in batches(side.folder.outputs, ["chunks"]):
        lengths = pc.utf8_length(RetrievedChunks(pa.chunked_array(batch.columns)).column("text"))
        total, count = total + (pc.sum(lengths).as_py() or 0), count + pc.count(lengths).as_py()
    return total / count if count else None


def _types(named: Mapping[str, Sequence[str]], old: _Documents, new: _Documents) -> dict[str, set[str]]:
    """By type of document the samples whose labels name one of that type."""
    types: dict[str, set[str]] = {}
    for name, ids in named.items():
        if kind := new.get(name, old.get(name, {})).get("doc_type"):
            types.setdefault(kind, set()).update(ids)
    return types


def _recall(pairs: Pairs, scores: Sequence[PairedScore], types: Mapping[str, set[str]]) -> dict[str, Any] | None:
    """Recall at the largest cut-off that both sides have, by type of the gold document, the largest drop first; None without recall or types."""
    ranked = sorted((int(match[1]), score.name, score) for score in scores if (match := _RECALL.fullmatch(score.name)))
    if not ranked or not types:
        return None
    score, ids = ranked[-1][2], pairs.cases["sample_id"].to_pylist()
    rows = []
    for kind, samples in sorted(types.items()):
        places = np.flatnonzero(score.measured & np.array([name in samples for name in ids], dtype=np.bool_))
        if len(places):
            paired = score.difference(places)
            means = {"base_mean": float(score.base[places].mean()), "candidate_mean": float(score.candidate[places].mean())}
            difference = {"difference": paired.difference, "interval": interval_document(paired.interval)}
            rows.append({"doc_type": kind, "n": len(places), **means, **difference})
    return {"score": score.name, "by_doc_type": sorted(rows, key=lambda row: row["difference"])}

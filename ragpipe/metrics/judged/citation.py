"""Are the answer's citations present, valid, accurate and sufficient?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import Field

from ragpipe.core.languages import NOT_COVERED
from ragpipe.core.refusals import read_refusal_async
from ragpipe.core.sample import Case, Chunk, Sample
from ragpipe.core.score import Score, ScoreSpec
from ragpipe.core.text import normalise, occurs
from ragpipe.judge.answers import CitationVerdict, CitationVerdicts, CitedClaim, CitedClaims
from ragpipe.judge.prompt import Prompt
from ragpipe.judge.question import Judge
from ragpipe.metrics.shared.citations import NAME_NO_CHUNK, Cited, citations_of, name_no_chunk
from ragpipe.metrics.shared.context_metric import RefusalMetric, numbered
from ragpipe.metrics.shared.judge_metric import (
    JudgeMetric,
    Weights,
    answer_flags,
    explain_weighted_mean,
    gather_pair,
    verdicts_in_batches,
)

Part = Literal["valid", "accuracy", "coverage"]
PARTS: tuple[Part, ...] = ("valid", "accuracy", "coverage")
SHARES = {"valid": ("valid", "citations"), "accuracy": ("accurate", "citations"), "coverage": ("cited", "claims")}
"""Of each part: what is counted, and of what, as keys of its details."""
Item = dict[str, Any]
ChunkKey = tuple[str, int]


class CitationQuestions(JudgeMetric):
    """The two questions to the judge: does each cited chunk support the passage that cites it, and which claims are cited?"""

    answer_types = {"support": (CitationVerdicts,), "coverage": (CitedClaims,)}
    support: Prompt
    coverage: Prompt
    batch: int = Field(default=20, ge=1, description="Citations per judge call, 1 or more.")

    def pairs(self, cited: Sequence[Cited]) -> dict[tuple[ChunkKey, str], tuple[Chunk, str]]:
        """The different (cited passage, chunk) pairs of the valid citations."""
        return {
            (_chunk_key(citation.chunk), citation.text): (citation.chunk, citation.text)
            for citation in cited
            if citation.chunk is not None
        }

    def support_values(self, case: Case, pairs: Sequence[tuple[Chunk, str]], again: bool = False) -> dict[str, Any]:
        chunks = {_chunk_key(chunk): chunk for chunk, _ in pairs}
        places = {key: place for place, key in enumerate(chunks, 1)}
        citations = [{"text": text, "source": places[_chunk_key(chunk)]} for chunk, text in pairs]
        numbers = {_chunk_key(chunk): number for number, chunk in reversed(numbered(case.contexts))}
        parts, sources = {"numbers": [numbers[key] for key in chunks]}, list(chunks.values())
        return self.prompt_values(self.support, case, parts, again=again, sources=sources, citations=citations)

    async def verdicts(self, case: Case, judge: Judge, cited: Sequence[Cited]) -> dict[tuple[ChunkKey, str], CitationVerdict]:
        """A verdict for each pair of chunk and cited passage, asked for in batches."""

        async def ask(part: list[tuple[Chunk, str]], again: bool) -> list[CitationVerdict]:
            return (await judge(self.support, CitationVerdicts, **self.support_values(case, part, again))).verdicts

        pairs = self.pairs(cited)
        verdicts = await verdicts_in_batches(list(pairs.values()), self.batch, ask)
        return dict(zip(pairs, verdicts, strict=True))

    async def claims(self, case: Case, judge: Judge, cited: Sequence[Cited]) -> list[CitedClaim]:
        """The answer's claims in order, each once; one that is listed with and without a citation carries one."""
        parts = {"citations": [f"{citation.label}: {citation.text}" for citation in cited]} if case.output.citations else {}
        values = self.prompt_values(self.coverage, case, parts, answer=case.answer)
        reply = await judge(self.coverage, CitedClaims, **values)
        claims: dict[str, CitedClaim] = {}
        for claim in reply.claims:
            name = claim.claim.strip()
            if any(c.isalnum() for c in name) and (name not in claims or claim.cited):
                claims[name] = claim.model_copy(update={"claim": name})
        return list(claims.values())


class CitationMetric(CitationQuestions, RefusalMetric):
    """0.3 valid + 0.4 accuracy + 0.3 coverage, 0 to 1 each. `weights` changes the weighted mean without a new
    question.

    `<name>_valid`: citations that name a retrieved chunk / all citations. `<name>_accuracy`: citations whose chunk
    supports the citing passage / all citations, so that a dangling citation lowers both. `<name>_coverage`: claims of
    the answer that carry a citation / all claims. `<name>_coverage_met`: 1 when coverage reaches the case's
    `expected.min_citation_coverage`, else `min_coverage`; `scoring.passes_with` makes it a condition of passing. For
    an answer without a claim both coverage scores are skipped (`no_factual_claims`), and the mean is that of the other
    parts.

    A citation names a chunk by its id or, without one, by a marker `[n]`: the chunk of rank n. It is dangling where no
    such chunk was retrieved. A citation with neither is unresolved and counts for neither valid nor accuracy; where
    all are unresolved the case is skipped (`citations_name_no_chunk`). Also skipped: cases with
    `expected.requires_citations: false`, and cases without recorded citations (`no_citations_recorded`). With
    `markers: true` the marks `[n]` of such an answer are read as citations of the chunk of rank n.

    An empty list of citations is 0 in all scores, without a call, unless `expected.requires_citations` is false. With
    `refusals: skip` an answer that only declines, by `patterns`, is skipped instead, unless the case requires
    citations explicitly. Needs an answer.
    """

    needs = frozenset({"answer"})
    reads = frozenset({"contexts"})
    version = 2

    weights: Weights[Part] = Field(
        default={"valid": 0.3, "accuracy": 0.4, "coverage": 0.3},
        description=(
            "Weights of the three parts of the score. They are divided by their sum; changing them asks no new question."
        ),
    )
    min_coverage: float = Field(
        default=0.8,
        ge=0,
        le=1,
        description=(
            "Share of claims with a citation that a case needs to pass, 0 to 1, where the case names none itself "
            "(`expected.min_citation_coverage`)."
        ),
    )
    markers: bool = Field(
        default=False,
        description=(
            "Whether marks such as [2] count as citations of the chunk of that rank where the output records no "
            "citations. Default: such answers are skipped."
        ),
    )
    refusals: Literal["skip", "zero"] = Field(
        default="skip",
        description=(
            "Score of an answer that only declines and cites nothing. skip: left out, unless the case requires "
            "citations; zero: 0, like every answer without citations."
        ),
    )

    def scores(self) -> tuple[ScoreSpec, ...]:
        met = ScoreSpec(f"{self.name}_coverage_met", binary=True)
        return (ScoreSpec(self.name), *(ScoreSpec(f"{self.name}_{part}") for part in PARTS), met)

    def sample_skip_reason(self, sample: Sample) -> str | None:
        if sample.expects.requires_citations is False:
            return "citations_not_required"
        return super().sample_skip_reason(sample)

    def skip_reason(self, case: Case) -> str | None:
        if case.output.citations is None and not self.markers:
            return "no_citations_recorded"
        return super().skip_reason(case) or name_no_chunk(case) or self._names_no_chunk(case)

    def _names_no_chunk(self, case: Case) -> str | None:
        """The skip reason where the answer cites by marks and none of them can be resolved, as for recorded citations."""
        cited = citations_of(case, markers=self.markers)
        return NAME_NO_CHUNK if cited and all(citation.unresolved for citation in cited) else None

    def explain_value(self, score: str, value: float, details: Mapping[str, Any]) -> str | None:
        for part, (numerator, denominator) in SHARES.items():
            if score == f"{self.name}_{part}" and details.get(denominator):
                return f"{details[numerator]} {numerator} / {details[denominator]} {denominator}"
        if score == f"{self.name}_coverage_met" and "minimum" in details:
            return f"coverage {details['coverage']:.4f}, at least {details['minimum']:g} is needed"
        if score != self.name or "parts" not in details:
            return None
        parts = details["parts"]
        return explain_weighted_mean(
            (weight, f"{parts[part]:.4f}", part) for part, weight in self.weights.items() if part in parts
        )

    async def measure(self, case: Case, judge: Judge) -> Sequence[Score]:
        cited = citations_of(case, markers=self.markers) or []
        if not cited:
            return await self._uncited(case)
        claims, verdicts = await gather_pair(self.claims(case, judge, cited), self.verdicts(case, judge, cited))
        return self._scores(case, [_row(citation, verdicts) for citation in cited], claims)

    async def _uncited(self, case: Case) -> Sequence[Score]:
        """No citation: 0 in all, or skipped for an answer that only declines, or may do so in a language that is not covered."""
        names = [spec.name for spec in self.scores()]
        if self.refusals == "skip" and not case.sample.expects.requires_citations:
            reading = await read_refusal_async(case.answer, self.patterns)
            if reading.refused or not reading.covered:
                why = "refusal_without_citations" if reading.covered else NOT_COVERED
                return [Score(name=name, status="skipped", reason=why) for name in names]
        return [Score(0.0, name, reason="no_citations_provided") for name in names]

    def _scores(self, case: Case, rows: list[Item], claims: list[CitedClaim]) -> Sequence[Score]:
        counted = [row for row in rows if "unresolved" not in row]
        dangling = [row["citation"] for row in counted if not row["valid"]]
        valid, accurate = len(counted) - len(dangling), sum(row["accurate"] for row in counted)
        values: dict[Part, float] = {"valid": valid / len(counted), "accuracy": accurate / len(counted)}
        uncited = [claim.claim for claim in claims if not claim.cited]
        if claims:
            values["coverage"] = (len(claims) - len(uncited)) / len(claims)
        flags = [*answer_flags(case.answer), *_citation_flags(rows)]
        details = {"parts": values, "citations": rows, "dangling": dangling, "uncited_claims": uncited, "flags": flags}
        coverage = f"{len(uncited)} of {len(claims)} claims uncited" if claims else "no_factual_claims"
        minimum = case.sample.expects.min_citation_coverage
        return (
            self._overall(values, f"{len(dangling)} dangling, {coverage}", details),
            Score(values["valid"], f"{self.name}_valid", details={"valid": valid, "citations": len(counted)}),
            Score(values["accuracy"], f"{self.name}_accuracy", details={"accurate": accurate, "citations": len(counted)}),
            *self._coverage(values.get("coverage"), self.min_coverage if minimum is None else minimum, claims, uncited),
        )

    def _overall(self, values: dict[Part, float], reason: str, details: dict[str, Any]) -> Score:
        """The weighted mean of the parts that have a value; skipped where all weight is on parts that have none."""
        weights = {part: weight for part, weight in self.weights.items() if part in values}
        if not (total := sum(weights.values())):
            return Score(name=self.name, status="skipped", reason="no_factual_claims", details=details)
        value = sum(weight * values[part] for part, weight in weights.items()) / total
        return Score(min(value, 1.0), self.name, reason=reason, details=details)

    def _coverage(
        self, coverage: float | None, minimum: float, claims: list[CitedClaim], uncited: list[str]
    ) -> tuple[Score, Score]:
        names = f"{self.name}_coverage", f"{self.name}_coverage_met"
        if coverage is None:
            first, second = (Score(name=name, status="skipped", reason="no_factual_claims") for name in names)
            return first, second
        counts = {"cited": len(claims) - len(uncited), "claims": len(claims), "uncited_claims": uncited}
        met = {"coverage": coverage, "minimum": minimum}
        return Score(coverage, names[0], details=counts), Score(float(coverage >= minimum), names[1], details=met)


def _chunk_key(chunk: Chunk) -> ChunkKey:
    """Identifies a chunk within its case: an id alone may occur twice."""
    return chunk.id, chunk.rank


def _citation_flags(rows: list[Item]) -> list[str]:
    flags = {
        "dangling_citations": any("unresolved" not in row and not row["valid"] for row in rows),
        "unresolved_citations": any("unresolved" in row for row in rows),
        "evidence_not_found": any(row.get("evidence_found") is False for row in rows),
    }
    return [flag for flag, is_set in flags.items() if is_set]


def _row(citation: Cited, verdicts: Mapping[tuple[ChunkKey, str], CitationVerdict]) -> Item:
    chunk = citation.chunk
    row: Item = {"citation": citation.label, "chunk": citation.named, "text": citation.text, "valid": chunk is not None}
    if citation.unresolved:
        return {**row, "accurate": False, "unresolved": True, "reason": "neither a chunk id nor a mark [n]"}
    if chunk is None:
        missing = "has this id" if citation.named else "has this rank"
        return {**row, "accurate": False, "reason": f"no retrieved chunk {missing}"}
    verdict = verdicts[_chunk_key(chunk), citation.text]
    row |= {"accurate": verdict.accurate, "evidence": verdict.evidence, "reason": verdict.reason}
    if verdict.accurate:
        row["evidence_found"] = occurs(verdict.evidence, [normalise(chunk.text)])
    return row

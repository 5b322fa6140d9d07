"""Are the answer's citations there, valid, accurate, and enough?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Literal

from pydantic import Field

from ragpipe.core.text_match import normalise, occurs
from ragpipe.judging.judge_protocol import Judge
from ragpipe.metrics.base import Need, PlannedCall
from ragpipe.metrics.shared.batched_verdicts import verdicts_in_batches
from ragpipe.metrics.shared.citation_parsing import Cited, citations_of, name_no_chunk
from ragpipe.metrics.shared.injection_flags import answer_flags
from ragpipe.metrics.shared.judge_metric import JudgeMetric, gather_pair
from ragpipe.metrics.shared.weighted_mean import Weights, explain_weighted_mean
from ragpipe.patterns.pattern_files import pattern_hashes
from ragpipe.patterns.pattern_input import Refusals
from ragpipe.patterns.refusals import read_refusal_async
from ragpipe.prompting.prompt import Prompt
from ragpipe.schema.judge_answers.citation_answers import CitationVerdict, CitationVerdicts, CitedClaim, CitedClaims
from ragpipe.schema.sample import Case, Chunk, OutputPart, Sample
from ragpipe.schema.score import Score, ScoreSpec

Part = Literal["valid", "accuracy", "coverage"]
PARTS: tuple[Part, ...] = ("valid", "accuracy", "coverage")
MINIMUM = 0.8
Item = dict[str, Any]
Place = tuple[str, int]


class Citing(JudgeMetric):
    """The questions of `Citation`: does each cited chunk support what cites it, and which claims carry a citation?"""

    support: Prompt
    coverage: Prompt
    batch: int = Field(default=20, ge=1, description="Citations per judge call, 1 or more.")

    def pairs(self, cited: Sequence[Cited]) -> dict[tuple[Place, str], tuple[Chunk, str]]:
        """The different (cited passage, chunk) pairs of the valid citations."""
        return {(_place(one.chunk), one.text): (one.chunk, one.text) for one in cited if one.chunk is not None}

    def support_values(self, case: Case, pairs: Sequence[tuple[Chunk, str]], again: bool = False) -> dict[str, Any]:
        chunks = list({_place(chunk): chunk for chunk, _ in pairs}.values())
        numbers = {_place(chunk): number for number, chunk in enumerate(chunks, 1)}
        citations = [{"text": text, "source": numbers[_place(chunk)]} for chunk, text in pairs]
        return self.prompt_values(
            self.support, case, {"again": True} if again else {}, sources=chunks, citations=citations
        )

    def coverage_values(self, case: Case, cited: Sequence[Cited]) -> dict[str, Any]:
        parts = {"citations": [f"{one.label}: {one.text}" for one in cited]} if case.output.citations else {}
        return self.prompt_values(self.coverage, case, parts, answer=case.answer)

    async def verdicts(
        self, case: Case, judge: Judge, cited: Sequence[Cited]
    ) -> dict[tuple[Place, str], CitationVerdict]:
        """A verdict for each pair of chunk and cited passage, asked for in batches."""

        async def ask(part: list[tuple[Chunk, str]], again: bool) -> list[CitationVerdict]:
            return (await judge(self.support, CitationVerdicts, **self.support_values(case, part, again))).verdicts

        pairs = self.pairs(cited)
        found = await verdicts_in_batches(list(pairs.values()), self.batch, ask)
        return dict(zip(pairs, found, strict=True))

    async def claims(self, case: Case, judge: Judge, cited: Sequence[Cited]) -> list[CitedClaim]:
        """The answer's claims in order, each once; one that is listed with and without a citation carries one."""
        reply = await judge(self.coverage, CitedClaims, **self.coverage_values(case, cited))
        found: dict[str, CitedClaim] = {}
        for claim in reply.claims:
            name = claim.claim.strip()
            if any(c.isalnum() for c in name) and (name not in found or claim.cited):
                found[name] = claim.model_copy(update={"claim": name})
        return list(found.values())


class CitationMetric(Citing):
    """0.3 valid + 0.4 accuracy + 0.3 coverage, 0 to 1 each; `weights` changes the mixture without a new question.

    `<name>_valid`: citations that name a retrieved chunk / all. `<name>_accuracy`: citations whose chunk supports the
    cited passage / all, so that a dangling citation counts against both. `<name>_coverage`: the answer's claims that carry
    a citation / all. `<name>_coverage_met`: 1 when coverage reaches the case's `expected.min_citation_coverage`, else
    `min_coverage`; `scoring.passes_with` makes it a condition of passing. An answer without a claim has no coverage: both are
    skipped (`no_factual_claims`), and the mixture is that of the other parts.

    A citation names a chunk by its id, without one by a marker `[n]`, which is the chunk of rank n. It dangles where no such
    chunk was retrieved. One that has neither is unresolved: it counts for neither valid nor accuracy, and where all are, the
    case is skipped (`citations_name_no_chunk`). Also skipped where `expected.requires_citations` is false, and where no citations are recorded (`no_citations_recorded`);
    with `markers: true` the marks `[n]` of such an answer are read as citations of the chunk of rank n. An empty list
    where citations are required, or not said not to be, is 0 in all without a call; `refusals: skip` excepts answers that
    only decline, by `patterns`, where the case does not require citations in so many words. Needs an answer.
    """

    needs: ClassVar[frozenset[Need]] = frozenset({"answer"})
    reads: ClassVar[frozenset[OutputPart]] = frozenset({"contexts"})
    version: ClassVar[int] = 2

    weights: Weights[Part] = Field(
        default={"valid": 0.3, "accuracy": 0.4, "coverage": 0.3},
        description=(
            "Weights of the three parts of the score. They are divided by their sum; changing them asks no new "
            "question."
        ),
    )
    min_coverage: float = Field(
        default=MINIMUM,
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
    patterns: Refusals = Field(
        default="refusals.v2",
        description=(
            "Rules that recognise an answer that only declines: the name of a file in conf/patterns, or a whole "
            "mapping of refusal patterns."
        ),
    )

    def files(self) -> Mapping[str, str]:
        return pattern_hashes([self.patterns])

    def scores(self) -> tuple[ScoreSpec, ...]:
        met = ScoreSpec(f"{self.name}_coverage_met", binary=True)
        return (ScoreSpec(self.name), *(ScoreSpec(f"{self.name}_{part}") for part in PARTS), met)

    def sample_skip_reason(self, sample: Sample) -> str | None:
        required = sample.expected.requires_citations if sample.expected else None
        return "citations_not_required" if required is False else super().sample_skip_reason(sample)

    def skip_reason(self, case: Case) -> str | None:
        if case.output.citations is None and not self.markers:
            return "no_citations_recorded"
        return super().skip_reason(case) or name_no_chunk(case)

    def planned_calls(self, case: Case) -> Iterable[PlannedCall]:
        cited = citations_of(case, markers=self.markers) or []
        if cited:
            yield PlannedCall(self.coverage, CitedClaims, self.coverage_values(case, cited))
        if pairs := list(self.pairs(cited).values()):
            times = -(-len(pairs) // self.batch)
            yield PlannedCall(self.support, CitationVerdicts, self.support_values(case, pairs[: self.batch]), times)

    def explain_value(self, score: str, value: float, details: Mapping[str, Any]) -> str | None:
        counts = {
            "valid": ("valid", "citations"),
            "accuracy": ("accurate", "citations"),
            "coverage": ("cited", "claims"),
        }
        for part, (some, all_) in counts.items():
            if score == f"{self.name}_{part}" and details.get(all_):
                return f"{details[some]} {some} / {details[all_]} {all_}"
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
        claims, found = await gather_pair(self.claims(case, judge, cited), self.verdicts(case, judge, cited))
        rows = [_row(one, found) for one in cited]
        counted = [row for row in rows if "unresolved" not in row]
        values: dict[Part, float] = {
            "valid": sum(row["valid"] for row in counted) / len(counted),
            "accuracy": sum(row["accurate"] for row in counted) / len(counted),
        }
        if claims:
            values["coverage"] = sum(claim.cited for claim in claims) / len(claims)
        return self._scores(case, values, rows, claims)

    async def _uncited(self, case: Case) -> Sequence[Score]:
        """No citation: 0 in all, or skipped for an answer that only declines."""
        required = case.sample.expected.requires_citations if case.sample.expected else None
        names = [spec.name for spec in self.scores()]
        if self.refusals == "skip" and not required and (await read_refusal_async(case.answer, self.patterns)).refused:
            return [Score(name=name, status="skipped", reason="refusal_without_citations") for name in names]
        return [Score(0.0, name, reason="no_citations_provided") for name in names]

    def _scores(
        self, case: Case, values: dict[Part, float], rows: list[Item], claims: list[CitedClaim]
    ) -> Sequence[Score]:
        own = case.sample.expected.min_citation_coverage if case.sample.expected else None
        minimum = self.min_coverage if own is None else own
        counted = [row for row in rows if "unresolved" not in row]
        dangling = [row["citation"] for row in counted if not row["valid"]]
        uncited = [claim.claim for claim in claims if not claim.cited]
        flags = [*answer_flags(case.answer), *(["dangling_citations"] if dangling else [])]
        flags += ["unresolved_citations"] if len(counted) < len(rows) else []
        flags += ["evidence_not_found"] if any(row.get("evidence_found") is False for row in rows) else []
        details = {"parts": values, "citations": rows, "dangling": dangling, "uncited_claims": uncited, "flags": flags}
        reason = f"{len(dangling)} dangling, " + (
            f"{len(uncited)} of {len(claims)} claims uncited" if claims else "no_factual_claims"
        )
        counts = {
            "valid": {"valid": len(counted) - len(dangling), "citations": len(counted)},
            "accuracy": {"accurate": sum(row["accurate"] for row in counted), "citations": len(counted)},
        }
        return (
            self._mixed(values, reason, details),
            *(Score(values[part], f"{self.name}_{part}", details=counts[part]) for part in PARTS[:2]),
            *self._covered(values.get("coverage"), minimum, claims, uncited),
        )

    def _mixed(self, values: dict[Part, float], reason: str, details: dict[str, Any]) -> Score:
        """The parts that there are by their weights; skipped where only a part weighs that there is not."""
        weights = {part: weight for part, weight in self.weights.items() if part in values}
        if not (total := sum(weights.values())):
            return Score(name=self.name, status="skipped", reason="no_factual_claims", details=details)
        value = sum(weight * values[part] for part, weight in weights.items()) / total
        return Score(min(value, 1.0), self.name, reason=reason, details=details)

    def _covered(
        self, coverage: float | None, minimum: float, claims: list[CitedClaim], uncited: list[str]
    ) -> tuple[Score, Score]:
        names = f"{self.name}_coverage", f"{self.name}_coverage_met"
        if coverage is None:
            first, second = (Score(name=name, status="skipped", reason="no_factual_claims") for name in names)
            return first, second
        counts = {"cited": len(claims) - len(uncited), "claims": len(claims), "uncited_claims": uncited}
        met = {"coverage": coverage, "minimum": minimum}
        return Score(coverage, names[0], details=counts), Score(float(coverage >= minimum), names[1], details=met)


def _place(chunk: Chunk) -> Place:
    """What tells the chunks of a case apart; an id alone may come twice."""
    return chunk.id, chunk.rank


def _row(one: Cited, verdicts: Mapping[tuple[Place, str], CitationVerdict]) -> Item:
    row: Item = {"citation": one.label, "chunk": one.named, "text": one.text, "valid": one.chunk is not None}
    if one.unresolved:
        return {**row, "accurate": False, "unresolved": True, "reason": "neither a chunk id nor a mark [n]"}
    if one.chunk is None:
        what = "has this id" if one.named else "has this rank"
        return {**row, "accurate": False, "reason": f"no retrieved chunk {what}"}
    verdict = verdicts[_place(one.chunk), one.text]
    row |= {"accurate": verdict.accurate, "evidence": verdict.evidence, "reason": verdict.reason}
    if verdict.accurate:
        row["evidence_found"] = occurs(verdict.evidence, [normalise(one.chunk.text)])
    return row

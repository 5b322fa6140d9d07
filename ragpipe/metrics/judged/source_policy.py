"""Does the answer respect how its sources may be used? A gate."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar
from typing import Literal as OneOf

from pydantic import Field

from ragpipe.core.text_match import normalise, occurs
from ragpipe.judging.judge_protocol import Judge
from ragpipe.metrics.base import Need, PlannedCall
from ragpipe.metrics.shared.batched_verdicts import verdicts_in_batches
from ragpipe.metrics.shared.citation_parsing import Cited, citations_of
from ragpipe.metrics.shared.injection_flags import answer_flags, one_line
from ragpipe.metrics.shared.judge_metric import JudgeMetric
from ragpipe.metrics.shared.verbatim import Literal, Passages, literal_in
from ragpipe.prompting.prompt import Prompt
from ragpipe.schema.judge_answers.citation_answers import SourceUse, SourceUses
from ragpipe.schema.sample import Case, Chunk
from ragpipe.schema.score import Score, ScoreSpec


@dataclass(frozen=True, slots=True)
class Found:
    """What the strings show of one restricted chunk. `use` is None where a judge has to say."""

    chunk: Chunk
    literal: Literal
    use: str | None


class SourcePolicyMetric(JudgeMetric):
    """1 when the answer uses every retrieved chunk as its policy allows, else 0.

    `quote_only`: direct quotes are fine, a paraphrase is a violation; `no_use`: any use is one. Chunks with the policy
    `summarize` are free and never looked at; a case without another is skipped (`no_restricted_chunks`).

    Word-for-word stretches are found first, without a call: a quotation of a chunk in quotation marks, or a run of
    `quote_words` words of it (it decides what is asked). That settles a `no_use` chunk (used), unless all of it stands
    in a free chunk or in what the user said too, which shows nothing; and a `quote_only` chunk when the answer holds
    nothing else (quoted). The judge is asked about the others, `batch` chunks a call; it is not told which policy they
    have, and with `show_free` sees the free chunks too, so that what stands there as well is no use.

    A direct quote of a `quote_only` chunk is attributed when a citation of that chunk stands beside it: a recorded one
    whose passage holds the quote, or, where none are recorded, a mark `[n]` in its sentence. A quote without one is
    flagged `unattributed_quote`; with `attribution: required` it is a violation (`quote_without_attribution`).

    The details hold the use of each restricted chunk, how it was found, the evidence, whether its quotes are attributed
    (null where nothing of it is quoted), and flags: `unattributed_quote`, `unmarked_quote` (a
    literal stretch without quotation marks that stands nowhere else), `quote_not_literal` (the judge sees a quote, the
    strings do not), `evidence_not_found` (its evidence is not in the answer). Needs answer and contexts.
    """

    needs: ClassVar[frozenset[Need]] = frozenset({"answer", "contexts"})

    use: Prompt
    quote_words: int = Field(
        default=6,
        ge=2,
        description=(
            "Words in a row, 2 or more, from which a passage of the answer that is also in a chunk counts as a "
            "quote without quotation marks."
        ),
    )
    show_free: bool = Field(
        default=True,
        description=(
            "Whether the judge also sees the unrestricted chunks, so that what they contain too is no violation. "
            "Makes prompts longer."
        ),
    )
    attribution: OneOf["required", "not_required"] = Field(
        default="not_required",
        description=(
            "A literal quote of a quote_only chunk without a citation of it. required: a violation; not_required: "
            "only flagged."
        ),
    )
    batch: int = Field(default=10, ge=1, description="Restricted chunks per judge call, 1 or more.")

    def scores(self) -> tuple[ScoreSpec, ...]:
        return (ScoreSpec(self.name, binary=True),)

    def skip_reason(self, case: Case) -> str | None:
        why = super().skip_reason(case)
        if why is None and all(chunk.policy == "summarize" for chunk in case.contexts):
            return "no_restricted_chunks"
        return why

    def found(self, case: Case) -> list[Found]:
        """The restricted chunks in rank order, with what needs no judge."""
        restricted = [chunk for chunk in case.contexts if chunk.policy != "summarize"]
        said = [case.question, *(turn.text for turn in case.sample.history if turn.role == "user")]
        free = [chunk.text for chunk in case.contexts if chunk.policy == "summarize"]
        elsewhere = Passages.of([*said, *free], self.quote_words)
        return [_look(case.answer, chunk, elsewhere) for chunk in restricted]

    def values(self, case: Case, chunks: Sequence[Chunk], again: bool = False) -> dict[str, Any]:
        parts: dict[str, Any] = {"again": True} if again else {}
        if self.show_free:
            parts["free"] = [chunk for chunk in case.contexts if chunk.policy == "summarize"]
        return self.prompt_values(self.use, case, parts, sources=chunks, answer=case.answer)

    def planned_calls(self, case: Case) -> Iterable[PlannedCall]:
        open_ = [one.chunk for one in self.found(case) if one.use is None]
        if open_:
            times = -(-len(open_) // self.batch)
            yield PlannedCall(self.use, SourceUses, self.values(case, open_[: self.batch]), times)

    def explain_value(self, score: str, value: float, details: Mapping[str, Any]) -> str | None:
        return f"1 without a violation, 0 with one: {len(details.get('violations', ()))} violations"

    async def measure(self, case: Case, judge: Judge) -> Score:
        async def ask(part: list[Chunk], again: bool) -> list[SourceUse]:
            return (await judge(self.use, SourceUses, **self.values(case, part, again))).verdicts

        found = self.found(case)
        open_ = [one.chunk for one in found if one.use is None]
        said = iter(await verdicts_in_batches(open_, self.batch, ask))
        rows = [_row(one, None if one.use else next(said), case.answer) for one in found]
        cited = citations_of(case, markers=True) or []
        for one, row in zip(found, rows, strict=True):
            self._attribute(one, row, cited)
        violations = [row for row in rows if row["violation"]]
        flags = list(dict.fromkeys([*answer_flags(case.answer), *(flag for row in rows for flag in row["flags"])]))
        details = {"sources": rows, "violations": violations, "flags": flags}
        reason = "; ".join(f"{row['chunk']}: {row['violation']}" for row in violations)
        return Score(float(not violations), reason=one_line(reason) or None, details=details)

    def _attribute(self, one: Found, row: dict[str, Any], cited: Sequence[Cited]) -> None:
        """Say in the row of a quoted `quote_only` chunk whether each quote of it carries a citation of it."""
        row["attributed"] = None
        if one.chunk.policy != "quote_only" or row["use"] != "direct_quote":
            return
        quotes = [stretch.text for stretch in one.literal.stretches if stretch.own]
        if not quotes and row["detection"] == "judge" and row["evidence"]:
            quotes = [row["evidence"]]
        if not quotes:  # the words stand in a free chunk too: nobody knows that this one was quoted
            return
        passages = [each.text for each in cited if each.chunk is not None and each.chunk.id == one.chunk.id]
        row["attributed"] = all(any(self._beside(quote, text) for text in passages) for quote in quotes)
        if not row["attributed"]:
            row["flags"].append("unattributed_quote")
            if self.attribution == "required":
                row["violation"] = "quote_without_attribution"

    def _beside(self, quote: str, passage: str) -> bool:
        """Whether a cited passage holds the quote, or as many words of it in a row as make one: a mark stands at the end
        of a quote of several sentences."""
        return occurs(quote, [normalise(passage)]) or bool(literal_in(passage, quote, self.quote_words).stretches)


def _look(answer: str, chunk: Chunk, elsewhere: Passages) -> Found:
    literal = literal_in(answer, chunk.text, elsewhere.least, elsewhere)
    if not any(c.isalnum() for c in chunk.text):
        return Found(chunk, literal, "not_used")  # nothing in it that could be used
    taken = any(stretch.own for stretch in literal.stretches)
    if taken if chunk.policy == "no_use" else literal.stretches and not literal.words_left:
        return Found(chunk, literal, "direct_quote")
    return Found(chunk, literal, None)


def _row(one: Found, said: SourceUse | None, answer: str) -> dict[str, Any]:
    quotes = [stretch.text for stretch in one.literal.stretches]
    own = [stretch for stretch in one.literal.stretches if stretch.own]
    flags = ["unmarked_quote"] if any(not stretch.marked for stretch in own) else []
    use = one.use if said is None else said.use
    if said is None:
        detection, evidence, reason = "strings", next((s.text for s in own), quotes[0] if quotes else ""), ""
    else:
        detection, evidence, reason = "judge", said.evidence, said.reason
        if use == "not_used" and own:
            use = "direct_quote"  # the strings show it, whatever the judge overlooked
        if use == "direct_quote" and not quotes:
            flags.append("quote_not_literal")
        if use != "not_used" and not occurs(evidence, [normalise(answer)]):
            flags.append("evidence_not_found")
    violation = None
    if one.chunk.policy == "no_use" and use != "not_used":
        violation = "source_usage_prohibited"
    elif one.chunk.policy == "quote_only" and use == "paraphrase":
        violation = "paraphrase_not_allowed"
    return {
        "chunk": one.chunk.id,
        "rank": one.chunk.rank,
        "policy": one.chunk.policy,
        "use": use,
        "violation": violation,
        "detection": detection,
        "evidence": evidence,
        "reason": reason,
        "quotes": quotes,
        "flags": flags,
    }

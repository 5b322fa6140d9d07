"""Does the answer respect how its sources may be used? A gate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import Field

from ragpipe.core.sample import Case, Chunk
from ragpipe.core.score import Score, ScoreSpec
from ragpipe.core.text import normalise, occurs
from ragpipe.judge.answers import SourceUse, SourceUses
from ragpipe.judge.prompt import Prompt
from ragpipe.judge.question import Judge
from ragpipe.metrics.shared.citations import Cited, QuoteWords, VerbatimMatch, WordRuns, citations_of, find_verbatim
from ragpipe.metrics.shared.context_metric import by_place, numbered
from ragpipe.metrics.shared.judge_metric import JudgeMetric, answer_flags, one_line, verdicts_in_batches


@dataclass(frozen=True, slots=True)
class RestrictedChunk:
    """A chunk with a policy, and how the answer uses it by the strings alone. `number` is that of the answer's marks. `use`
    is None where a judge must decide."""

    number: int
    chunk: Chunk
    verbatim: VerbatimMatch
    use: str | None


class SourcePolicyMetric(JudgeMetric):
    """1 when the answer uses every retrieved chunk as its policy allows, else 0.

    `quote_only`: direct quotes are allowed, a paraphrase is a violation. `no_use`: any use is a violation. Chunks with
    the policy `summarize` are free and not checked; a case with only such chunks is skipped (`no_restricted_chunks`).

    Verbatim spans are found first, without a call: a quotation of a chunk in quotation marks, or a run of
    `quote_words` words of it (this decides what is asked). That settles a `no_use` chunk (used), unless all of the
    span is also in a free chunk or in what the user said, which proves nothing; and a `quote_only` chunk when the
    answer contains nothing else (quoted). The judge is asked about the others, `batch` chunks per call. It does not
    see their policies; with `show_free` it sees the free chunks too, so that what they contain as well is no use.

    A direct quote of a `quote_only` chunk is attributed when a citation of that chunk is beside it: a recorded one
    whose passage contains the quote or, where none are recorded, a mark `[n]` in its sentence. A quote without one is
    flagged `unattributed_quote`; with `attribution: required` it is a violation (`quote_without_attribution`).

    The details hold the use of each restricted chunk, how it was detected, the evidence, whether its quotes are
    attributed (null where nothing of it is quoted), and flags: `unattributed_quote`, `unmarked_quote` (a verbatim span
    without quotation marks that is in no other source), `quote_not_literal` (the judge sees a quote, the strings do
    not), `evidence_not_found` (the judge's evidence is not in the answer). Needs answer and contexts.
    """

    gives = ScoreSpec("", binary=True)
    needs = frozenset({"answer", "contexts"})

    answer_types = {"use": (SourceUses,)}
    use: Prompt
    quote_words: QuoteWords = 6
    show_free: bool = Field(
        default=True,
        description=(
            "Whether the judge also sees the unrestricted chunks, so that what they contain too is no violation. "
            "Makes prompts longer."
        ),
    )
    attribution: Literal["required", "not_required"] = Field(
        default="not_required",
        description=(
            "A literal quote of a quote_only chunk without a citation of it. required: a violation; not_required: only flagged."
        ),
    )
    batch: int = Field(default=10, ge=1, description="Restricted chunks per judge call, 1 or more.")

    def skip_reason(self, case: Case) -> str | None:
        why = super().skip_reason(case)
        if why is None and all(chunk.policy == "summarize" for chunk in case.contexts):
            return "no_restricted_chunks"
        return why

    def restricted(self, case: Case) -> list[RestrictedChunk]:
        """The restricted chunks in rank order, with the uses that need no judge."""
        user_texts = [case.question, *(turn.text for turn in case.sample.history if turn.role == "user")]
        free_texts = [chunk.text for chunk in case.contexts if chunk.policy == "summarize"]
        elsewhere = WordRuns.of([*user_texts, *free_texts], self.quote_words)
        return [
            RestrictedChunk(number, chunk, *_use_by_strings(case.answer, chunk, elsewhere))
            for number, chunk in numbered(case.contexts)
            if chunk.policy != "summarize"
        ]

    def values(self, case: Case, items: Sequence[RestrictedChunk], again: bool = False) -> dict[str, Any]:
        parts: dict[str, Any] = {"numbers": [item.number for item in items]}
        if self.show_free:
            free = [(number, chunk) for number, chunk in numbered(case.contexts) if chunk.policy == "summarize"]
            parts |= {"free": [chunk for _, chunk in free], "free_numbers": [number for number, _ in free]}
        sources = [item.chunk for item in items]
        return self.prompt_values(self.use, case, parts, again=again, sources=sources, answer=case.answer)

    def explain_value(self, score: str, value: float, details: Mapping[str, Any]) -> str | None:
        return f"1 without a violation, 0 with one: {len(details.get('violations', ()))} violations"

    async def measure(self, case: Case, judge: Judge) -> Score:
        async def ask(part: list[RestrictedChunk], again: bool) -> list[SourceUse]:
            values = self.values(case, part, again)
            return by_place((await judge(self.use, SourceUses, **values)).verdicts, values.get("numbers"))

        restricted = self.restricted(case)
        undecided = [item for item in restricted if item.use is None]
        verdicts = iter(await verdicts_in_batches(undecided, self.batch, ask))
        rows = [_row(item, None if item.use else next(verdicts), case.answer) for item in restricted]
        citations = citations_of(case, markers=True) or []
        for item, row in zip(restricted, rows, strict=True):
            self._attribute(item, row, citations)
        violations = [row for row in rows if row["violation"]]
        flags = list(dict.fromkeys([*answer_flags(case.answer), *(flag for row in rows for flag in row["flags"])]))
        details = {"sources": rows, "violations": violations, "flags": flags}
        reason = "; ".join(f"{row['chunk']}: {row['violation']}" for row in violations)
        return Score(float(not violations), reason=one_line(reason) or None, details=details)

    def _attribute(self, item: RestrictedChunk, row: dict[str, Any], citations: Sequence[Cited]) -> None:
        """Note in the row of a quoted `quote_only` chunk whether each quote of it carries a citation of it."""
        row["attributed"] = None
        quotes = _attributable_quotes(item, row)
        if not quotes:
            return
        chunk_id = item.chunk.id
        passages = [citation.text for citation in citations if citation.chunk is not None and citation.chunk.id == chunk_id]
        row["attributed"] = all(any(self._is_beside(quote, passage) for passage in passages) for quote in quotes)
        if not row["attributed"]:
            row["flags"].append("unattributed_quote")
            if self.attribution == "required":
                row["violation"] = "quote_without_attribution"

    def _is_beside(self, quote: str, passage: str) -> bool:
        """Whether a cited passage contains the quote, or so many of its words in a row as make a quote."""
        return occurs(quote, [normalise(passage)]) or bool(find_verbatim(passage, quote, self.quote_words).spans)


def _use_by_strings(answer: str, chunk: Chunk, elsewhere: WordRuns) -> tuple[VerbatimMatch, str | None]:
    """The verbatim spans, and the use of a chunk where strings settle it."""
    verbatim = find_verbatim(answer, chunk.text, elsewhere.min_words, elsewhere)
    if not any(c.isalnum() for c in chunk.text):
        return verbatim, "not_used"  # nothing in it that could be used
    if chunk.policy == "no_use":
        is_quote = any(span.exclusive for span in verbatim.spans)
    else:
        is_quote = bool(verbatim.spans) and not verbatim.words_left
    return verbatim, "direct_quote" if is_quote else None


def _attributable_quotes(item: RestrictedChunk, row: dict[str, Any]) -> list[str]:
    """The quotes of a `quote_only` chunk that need a citation: none whose words are in a free chunk too."""
    if item.chunk.policy != "quote_only" or row["use"] != "direct_quote":
        return []
    quotes = [span.text for span in item.verbatim.spans if span.exclusive]
    if not quotes and row["detection"] == "judge" and row["evidence"]:
        return [row["evidence"]]
    return quotes


def _row(item: RestrictedChunk, verdict: SourceUse | None, answer: str) -> dict[str, Any]:
    quotes = [span.text for span in item.verbatim.spans]
    exclusive = [span for span in item.verbatim.spans if span.exclusive]
    use = _combined_use(item, verdict)
    evidence = next((span.text for span in exclusive), quotes[0] if quotes else "")
    return {
        "chunk": item.chunk.id,
        "rank": item.chunk.rank,
        "policy": item.chunk.policy,
        "use": use,
        "violation": _violation(item.chunk, use),
        "detection": "strings" if verdict is None else "judge",
        "evidence": evidence if verdict is None else verdict.evidence,
        "reason": "" if verdict is None else verdict.reason,
        "quotes": quotes,
        "flags": _flags(item, verdict, use, answer),
    }


def _combined_use(item: RestrictedChunk, verdict: SourceUse | None) -> str | None:
    """The use by the strings, else by the judge; an exclusive span is a quote, whatever the judge overlooked."""
    if verdict is None:
        return item.use
    is_quote = any(span.exclusive for span in item.verbatim.spans)
    return "direct_quote" if verdict.use == "not_used" and is_quote else verdict.use


def _violation(chunk: Chunk, use: str | None) -> str | None:
    if chunk.policy == "no_use" and use != "not_used":
        return "source_usage_prohibited"
    if chunk.policy == "quote_only" and use == "paraphrase":
        return "paraphrase_not_allowed"
    return None


def _flags(item: RestrictedChunk, verdict: SourceUse | None, use: str | None, answer: str) -> list[str]:
    flags = ["unmarked_quote"] if any(span.exclusive and not span.quoted for span in item.verbatim.spans) else []
    if verdict is None:
        return flags
    if use == "direct_quote" and not item.verbatim.spans:
        flags.append("quote_not_literal")
    if use != "not_used" and not occurs(verdict.evidence, [normalise(answer)]):
        flags.append("evidence_not_found")
    return flags

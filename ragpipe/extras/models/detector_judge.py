"""The judge `detector`: answers the questions about claims and citations with the readings of a trained verifier.

Claims are listed by the rules of the judge without a model; whether the passages support them is what the verifier says. Readings
are kept in the call store: what was read once is not computed again, in no iteration, metric or run. `docs/extras/models.md`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar, cast, get_args

from ragpipe.core.call import Payload, Schema
from ragpipe.core.citation_marks import without_marks
from ragpipe.core.errors import JudgeError, Skipped
from ragpipe.core.sample import AnyReference
from ragpipe.extras.models.detector_models import Reading, Texts, reading_texts
from ragpipe.extras.models.detector_settings import DetectorSettings
from ragpipe.judge.answer_type import Answer
from ragpipe.judge.answers import CheckedClaims, CitationVerdicts, CitedClaims, Claims, QuotedClaims, QuotedVerdicts, Verdicts
from ragpipe.judge.embedder import LocalTransport
from ragpipe.judge.http_responses import replace_surrogates
from ragpipe.judge.prompt import Prompt
from ragpipe.judge.question import IGNORED_ROLES, source_texts, values_by_role
from ragpipe.judge.rules.claims import extract_features, index_sources, placed_claims, states_without_words
from ragpipe.judge.rules.rules_judge import find_cited_claims
from ragpipe.judge.session import JudgeSession
from ragpipe.store.call_store import ReplyStore

A = TypeVar("A", bound=Answer)
Roles = Mapping[str, Any]

CANNOT_ANSWER = "detector_cannot_answer"
_TOGETHER = 64  # readings of one round: batches are full, and the end of a run that is stopped is not far


class Claim(NamedTuple):
    """A claim, what states it at `start` to `end`, what was asked ('' where that is not known), and the passages."""

    claim: str
    text: str
    start: int
    end: int
    question: str
    passages: tuple[str, ...]


def detector_session(judge: DetectorSettings, replies: ReplyStore, embedder: JudgeSession | None) -> JudgeSession:
    """The session of a detector. A reading that is not stored is computed with those that other cases wait for: no provider is asked, so
    no transport forbids it."""
    transport = LocalTransport(reading_texts(judge), together=_TOGETHER, drops_waiting=True)
    reader = JudgeSession(identity=judge.identity_of_reading(), label=judge.label, transport=transport, store=replies)

    async def read(texts: Texts) -> Reading:
        messages = tuple({"role": "text", "content": replace_surrogates(text)[0]} for text in texts)
        payload = Payload(messages, Schema(form="json", type="grounding_reading"))
        call = await reader.reply(reader.question(payload, Reading, 1, "a reading of the detector"))
        if call.status != "ok":
            raise JudgeError(call.status, call.message or "no reading", text=call.text)  # type: ignore[arg-type]
        return Reading.model_validate_json(call.text or "")

    answers, identity = DetectorJudge(judge, read), judge.identity_of_judge()
    return JudgeSession(identity=identity, label=judge.label, in_process=answers, embedder=embedder, reader=reader)


class DetectorJudge:
    """A detector as a judge. Without `read` only `answer` can be asked."""

    def __init__(self, settings: DetectorSettings, read: Callable[[Texts], Awaitable[Reading]] | None = None):
        self.settings, self._read = settings, read

    async def read(self, prompt: Prompt, answer: type[A], values: Roles, /) -> A:
        """Answer one question from the prompt's values.

        Raises Skipped (`detector_cannot_answer`) for questions about anything but claims and citations, and for a text such as "No.",
        whose claim is in the question; JudgeError (`too_long`) where a text does not fit into the model.
        """
        found = self._claims(prompt, answer, values)
        if isinstance(found, Answer):
            return cast(A, found)
        if self._read is None:
            raise JudgeError("missing_reply", "the detector is not asked here")
        whole = self.settings.family == "lettucedetect"  # the text as it stands with its question, else the claim alone
        asked = [((c.question, c.text) if whole else (_unmarked(c.claim),)) + c.passages for c in found]
        different = list(dict.fromkeys(asked))
        readings = dict(zip(different, await asyncio.gather(*map(self._read, different)), strict=True))
        if long := [reading.too_long for reading in readings.values() if reading.too_long]:
            raise JudgeError("too_long", long[0])
        return self._answer(answer, found, [readings[texts] for texts in asked])

    def answer(self, prompt: Prompt, answer: type[A], values: Roles, /) -> A:
        """The answer to readings that found nothing, which no model made: it tells whether this judge could answer. Raises Skipped
        as `read`."""
        found = self._claims(prompt, answer, values)
        return cast(A, found) if isinstance(found, Answer) else self._answer(answer, found, [Reading()] * len(found))

    def _claims(self, prompt: Prompt, answer: type[A], values: Roles) -> list[Claim] | Answer:
        roles = values_by_role(prompt, values)
        handler = HANDLERS.get((answer, frozenset(roles) - IGNORED_ROLES)) if roles is not None else None
        if roles is None or handler is None:
            raise Skipped(CANNOT_ANSWER)
        return handler(roles)

    def _answer(self, answer: type[A], claims: Sequence[Claim], readings: Sequence[Reading]) -> A:
        """The one list of the answer, each item with what its type has of a verdict."""
        ((name, field),) = answer.model_fields.items()
        (item,) = get_args(field.annotation)
        by_family = _by_spans if self.settings.family == "lettucedetect" else _by_pairs
        items = []
        for index, (claim, reading) in enumerate(zip(claims, readings, strict=True), 1):
            verdict, evidence, reason = by_family(claim, reading, self.settings.threshold)
            known = {"index": index, "claim": claim.claim, "reason": reason, "verdict": verdict, "evidence": evidence}
            known |= dict.fromkeys(("supported", "accurate"), verdict == "supported")
            known |= {"evidence": [evidence] if evidence else []} if "verdict" in item.model_fields else {}
            items.append({key: known[key] for key in item.model_fields})
        return answer.model_validate({name: items})


def _by_spans(claim: Claim, reading: Reading, threshold: float) -> tuple[str, str, str]:
    """Verdict, evidence (nearest by words), numbers: supported where no unsupported token touches a letter or digit of it."""
    inside = [token for token in reading.tokens if token.start < claim.end and token.end > claim.start]
    worded = [token for token in inside if any(c.isalnum() for c in claim.text[token.start : token.end])]
    highest = max((token.unsupported for token in worded), default=0.0)
    if against := [token for token in worded if 1 - token.unsupported < threshold]:
        words = ", ".join(repr(claim.text[token.start : token.end].strip()) for token in against[:5])
        return "not_supported", "", f"unsupported: {words}{', ...' if against[5:] else ''} ({highest:.3f})"
    evidence = extract_features(claim.claim, index_sources(claim.passages)).evidence
    return "supported", evidence, f"no unsupported span (highest {highest:.3f})"


def _by_pairs(claim: Claim, reading: Reading, threshold: float) -> tuple[str, str, str]:
    """The same of a model of claims: supported from the threshold on in one passage; contradicted where only that probability reaches it."""
    support, contradiction = max(reading.support, default=0.0), max(reading.contradiction, default=0.0)
    reason = f"support {support:.3f} of {threshold:g} needed"
    reason += f", contradiction {contradiction:.3f}" if reading.contradiction else ""
    if max(support, contradiction) < threshold:
        return "not_supported", "", reason
    verdict, shares = ("supported", reading.support) if support >= threshold else ("contradicted", reading.contradiction)
    passage = claim.passages[best := shares.index(max(shares))]
    evidence = extract_features(claim.claim, index_sources((passage,))).evidence or passage.strip()
    return verdict, evidence, f"{reason}; passage {best + 1} of {len(claim.passages)}"


def _unmarked(text: str) -> str:
    return " ".join(without_marks(text).split()) or text


def _text(roles: Roles) -> str:
    """The answer, or the reference. Raises Skipped where it has no single list of claims, or states something without one."""
    text = roles["text"] if "text" in roles else roles["reference"]
    if isinstance(text, AnyReference) or (not placed_claims(str(text)) and states_without_words(str(text))):
        raise Skipped(CANNOT_ANSWER)
    return str(text)


def _extract(roles: Roles) -> Claims:
    return Claims(claims=[claim for claim, *_ in placed_claims(_text(roles))])


def _stated(roles: Roles) -> list[Claim]:
    """The claims of a text, which is read as it stands."""
    text, question, passages = _text(roles), str(roles.get("question") or ""), source_texts(roles)
    return [Claim(claim, text, start, end, question, passages) for claim, start, end in placed_claims(text)]


def _listed(roles: Roles) -> list[Claim]:
    """Claims that were listed before: one after the other they are the text."""
    claims, question, passages = list(map(str, roles["claims"])), str(roles.get("question") or ""), source_texts(roles)
    starts = [sum(len(claim) + 1 for claim in claims[:number]) for number in range(len(claims))]
    text = " ".join(claims)
    return [Claim(c, text, at, at + len(c), question, passages) for c, at in zip(claims, starts, strict=True)]


def _cited(roles: Roles) -> list[Claim]:
    """Each cited text of the answer, as one claim, with the one source that it cites."""
    sources = source_texts(roles)
    cited = [(_unmarked(str(one["text"])), sources[int(one["source"]) - 1]) for one in roles["citations"]]
    return [Claim(text, text, 0, len(text), "", (source,)) for text, source in cited]


Handler = Callable[[Roles], list[Claim] | Answer]
HANDLERS: dict[tuple[type[Answer], frozenset[str]], Handler] = {
    (CitationVerdicts, frozenset(("sources", "citations"))): _cited,
    (CitedClaims, frozenset(("text", "citations"))): lambda roles: find_cited_claims(str(roles["text"]), roles["citations"]),
    **{(kind, frozenset(("claims", "sources"))): _listed for kind in (Verdicts, QuotedVerdicts)},
    **{(kind, frozenset(("text", "sources"))): _stated for kind in (CheckedClaims, QuotedClaims)},
    **{(kind, frozenset(("reference", "sources"))): _stated for kind in (CheckedClaims, QuotedClaims)},
    **{(Claims, frozenset((role,))): _extract for role in ("text", "reference")},
}
"""By the answer's type and the roles of the question's values: the claims to check, or an answer that needs no model."""

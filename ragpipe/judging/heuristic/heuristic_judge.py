"""The embedded judge: answers by looking at strings, and says so.

It has one handler for each answer type and set of roles, and gets the values of the prompt's variables, never the
rendered text: instructions, forged tags or verdict words inside an answer are only strings to it. Not calibrated: its
agreement with human labels, and what it cannot see, stand in `docs/evidence.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, cast

from ragpipe.core.errors import Skipped
from ragpipe.judging.heuristic.citation_checks import citations_hold, cited_claims, declines, source_uses
from ragpipe.judging.heuristic.claim_features import Pool, pool_of
from ragpipe.judging.heuristic.claim_splitting import claims_of, is_cited
from ragpipe.judging.heuristic.settings import HeuristicSettings
from ragpipe.judging.heuristic.useful_chunks import useful_chunks
from ragpipe.judging.heuristic.verdict_rules import ClaimFinding, decide
from ragpipe.prompting.prompt import Prompt
from ragpipe.schema.judge_answers.answers import (
    Answer,
    CheckedClaim,
    CheckedClaims,
    ChunkGrades,
    Claims,
    Groundedness,
    Verdict,
    Verdicts,
    YesNo,
)
from ragpipe.schema.judge_answers.behaviour import CitationVerdicts, CitedClaims, Refusal, SourceUses
from ragpipe.schema.reference_answers import AnyReference

A = TypeVar("A", bound=Answer)

IGNORED_ROLES = frozenset(("question", "history"))  # roles that may be there and change no look at strings
_UNRELATED = 0.2  # share of content words under which a claim has nothing to do with the sources


class HeuristicJudge:
    """The judge `evidence-v1`. Deterministic and safe in threads; answers are computed, never stored.

    `version` is its identity together with its settings: every change that can turn a verdict raises it.
    """

    def __init__(self, settings: HeuristicSettings):
        self.settings = settings
        self.version: str = settings.rules

    def answer(self, prompt: Prompt, answer: type[A], values: Mapping[str, Any], /) -> A:
        """Answer one question from the prompt's values.

        Raises Skipped: `evidence_cannot_answer` when there is no handler for the answer type and the prompt's roles
        (rubric questions, generation), `no_factual_claims` when the text asserts nothing that could be looked for.
        """
        roles = _by_role(prompt, values)
        handler = HANDLERS.get((answer, frozenset(roles) - IGNORED_ROLES))
        if handler is None:
            raise Skipped("evidence_cannot_answer")
        return cast(A, handler(roles, self.settings))


def _by_role(prompt: Prompt, values: Mapping[str, Any]) -> dict[str, Any]:
    """The values under their roles; absent ones are left out. Two values of one role are a question unknown to it."""
    given = {**prompt.optional, **values}
    roles: dict[str, Any] = {}
    for name, role in prompt.roles.items():
        if given.get(name) is None:
            continue
        if role in roles and role not in IGNORED_ROLES:
            raise Skipped("evidence_cannot_answer")
        roles[role] = given[name]
    return roles


def _extract(roles: Mapping[str, Any], settings: HeuristicSettings) -> Claims:
    return Claims(claims=list(_claims(roles)))


def _verify(roles: Mapping[str, Any], settings: HeuristicSettings) -> Verdicts:
    found = decide([str(claim) for claim in roles["claims"]], _sources(roles), settings)
    return Verdicts(
        verdicts=[
            Verdict(index=place, supported=f.supported, evidence=f.evidence, reason=f.reason)
            for place, f in enumerate(found, 1)
        ]
    )


def _check(roles: Mapping[str, Any], settings: HeuristicSettings) -> CheckedClaims:
    """Extraction and verdicts at once: the same claims and the same findings as one after the other."""
    found = decide(_claims(roles), _sources(roles), settings)
    return CheckedClaims(
        claims=[CheckedClaim(claim=f.claim, supported=f.supported, evidence=f.evidence, reason=f.reason) for f in found]
    )


def _useful(roles: Mapping[str, Any], settings: HeuristicSettings) -> ChunkGrades:
    reference = roles["reference"]
    references = reference.texts if isinstance(reference, AnyReference) else (str(reference),)
    return useful_chunks(str(roles.get("question", "")), references, _texts(roles), settings)


def _citations(roles: Mapping[str, Any], settings: HeuristicSettings) -> CitationVerdicts:
    return citations_hold(roles["citations"], _texts(roles), settings)


def _cited_claims(roles: Mapping[str, Any], settings: HeuristicSettings) -> CitedClaims:
    return cited_claims(str(roles["text"]), roles["citations"])


def _uses(roles: Mapping[str, Any], settings: HeuristicSettings) -> SourceUses:
    return source_uses(str(roles["text"]), _texts(roles), settings)


def _declines(roles: Mapping[str, Any], settings: HeuristicSettings) -> Refusal:
    return declines(str(roles["text"]))


def _whole(roles: Mapping[str, Any], settings: HeuristicSettings) -> YesNo:
    """Whether the sources support every claim of the text. An existing YES stays YES."""
    if str(roles.get("existing", "")).strip()[:3].upper() == "YES":
        return YesNo(verdict="YES", text="YES: the existing answer stands")
    claims = claims_of(str(roles["text"]))
    if not claims:
        if "question" in roles:
            return YesNo(verdict="NO", text="NO: the text asserts nothing, so it answers nothing")
        raise Skipped("no_factual_claims")
    found = decide(claims, _sources(roles), settings)
    lacking = [f for f in found if not f.supported]
    verdict = "NO" if lacking else "YES"
    first = f"; first without support: {lacking[0].claim[:200]!r} ({lacking[0].reason})" if lacking else ""
    return YesNo(
        verdict=verdict, text=f"{verdict}: {len(found) - len(lacking)} of {len(found)} claims supported{first}"
    )


def _grounded(roles: Mapping[str, Any], settings: HeuristicSettings) -> Groundedness:
    claims = claims_of(str(roles["text"]))
    if not claims:
        raise Skipped("no_factual_claims")
    found = decide(claims, _sources(roles), settings)
    score, why = _grade(found)
    return Groundedness(
        score=score,
        supported_claims=[f.claim for f in found if f.supported],
        unsupported_claims=[f.claim for f in found if not f.supported],
        major_claims_cited=_cited(claims),
        reason=why,
    )


def _cited(claims: Sequence[str]) -> bool | None:
    """Whether at least half of the claims carry a mark: a mark often stands for the sentences before it too.

    None without any mark: citations recorded beside the answer are not in its text.
    """
    marked = sum(is_cited(claim) for claim in claims)
    return 2 * marked >= len(claims) if marked else None


def _grade(found: list[ClaimFinding]) -> tuple[int, str]:
    """0..5 from the share of supported claims; a contradiction caps it at 2. Citations are reported apart."""
    share = sum(f.supported for f in found) / len(found)
    against = sum(f.contradicted for f in found)
    why = f"{share:.2f} of {len(found)} claims supported, {against} contradicted"
    if share == 1:
        return 5, why
    if not share and all(f.signals.recall < _UNRELATED for f in found):
        return 0, f"{why}; nothing in common with the sources"
    if against:
        return (2 if share >= 0.5 else 1), why
    return (4 if share >= 0.75 else 3 if share >= 0.5 else 2), why


def _claims(roles: Mapping[str, Any]) -> tuple[str, ...]:
    """The claims of the answer, or of the reference where that is what is taken apart. Of several references of which any
    will do there is no one list of claims."""
    text = roles["text"] if "text" in roles else roles["reference"]
    if isinstance(text, AnyReference):
        raise Skipped("evidence_cannot_answer")
    return claims_of(str(text))


def _sources(roles: Mapping[str, Any]) -> Pool:
    """The sources, indexed once."""
    return pool_of(_texts(roles))


def _texts(roles: Mapping[str, Any]) -> tuple[str, ...]:
    """Chunks or texts, one or many."""
    given = roles["sources"]
    many = given if isinstance(given, list | tuple) else [given]
    return tuple(source if isinstance(source, str) else str(source.text) for source in many)


_Handler = Callable[[Mapping[str, Any], HeuristicSettings], Answer]
HANDLERS: dict[tuple[type[Answer], frozenset[str]], _Handler] = {
    (Claims, frozenset(("text",))): _extract,
    (Claims, frozenset(("reference",))): _extract,
    (Verdicts, frozenset(("claims", "sources"))): _verify,
    (CheckedClaims, frozenset(("text", "sources"))): _check,
    (CheckedClaims, frozenset(("reference", "sources"))): _check,
    (ChunkGrades, frozenset(("reference", "sources"))): _useful,
    (YesNo, frozenset(("text", "sources"))): _whole,
    (YesNo, frozenset(("text", "sources", "existing"))): _whole,
    (Groundedness, frozenset(("text", "sources"))): _grounded,
    (CitationVerdicts, frozenset(("sources", "citations"))): _citations,
    (CitedClaims, frozenset(("text", "citations"))): _cited_claims,
    (SourceUses, frozenset(("text", "sources"))): _uses,
    (Refusal, frozenset(("text",))): _declines,
}

"""Does the answer have the form that was asked for? Rules first; only the tone needs a judge."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from ragpipe.core.patterns import Search, compile_timed, pattern_hashes
from ragpipe.core.sample import Case
from ragpipe.core.score import Score, ScoreSpec
from ragpipe.core.settings import accepted_by
from ragpipe.core.text import normalise, occurs
from ragpipe.judge.answers import Tone
from ragpipe.judge.prompt import Prompt
from ragpipe.judge.question import Judge
from ragpipe.metrics.shared.format_checks import LANGUAGES, check_schema, function_words, language_of, schema_fault, sizes
from ragpipe.metrics.shared.judge_metric import JudgeMetric, answer_flags, one_line

Unit = Literal["words", "characters", "sentences"]
Check = dict[str, Any]


class FormatMetric(JudgeMetric):
    """1 when the answer passes every check that is on, else 0. At least one must be on.

    - `matches`, `never_matches`: regular expressions, each under a name of your own, that the answer must match or
      must not match. They ignore case; `(?-i:...)` does not. One that takes longer than a second makes the case an
      error.
    - `json_schema`: the whole answer, or the one fenced block that it consists of, is JSON of this schema. A `pattern`
      in it respects case, and a `format` is checked (date, date-time, email, ipv4, ipv6, regex, uuid; others are
      refused).
    - `length`: [least, most] words (each Chinese character and each kana is one), characters or sentences; null is no
      limit. `length: null`: 1 to 300 words where no other check is on, else not checked; {}: not checked.
    - `language`: recognised by function words (`conf/patterns/languages.v1.yaml`: en, de, fr, es, it, pt, nl). A short
      answer or a list of names is undecided, which breaks nothing; the case is skipped (`language_undecided`) where
      nothing else is checked.
    - `wanted_tone`: how the answer should sound, in one call to the judge; without it there is no call.

    The details hold each check with what was found and expected. Needs an answer.
    """

    gives = ScoreSpec("", binary=True)
    needs = frozenset({"answer"})
    version = 2

    answer_types = {"tone": (Tone,)}
    tone: Prompt | None = None
    matches: dict[str, str] = Field(
        default_factory=dict,
        description=(
            "Regular expressions that the answer must match, by a name of your own. They ignore case; `(?-i:...)` "
            "does not. Default: none."
        ),
    )
    never_matches: dict[str, str] = Field(
        default_factory=dict,
        description="Regular expressions that the answer must not match, by a name of your own. Default: none.",
    )
    json_schema: Annotated[dict[str, Any], accepted_by(check_schema)] | None = Field(
        default=None, description="JSON Schema (draft 2020-12) that the whole answer must satisfy. null: not checked."
    )
    length: dict[Unit, list[int | None]] | None = Field(
        default=None,
        description=(
            "Allowed length as [least, most] per unit; null in a pair is no limit. null: 1 to 300 words where no "
            "other check is on, else not checked."
        ),
    )
    language: str | None = Field(
        default=None,
        description="Language that the answer must be in, as a code (en, de, fr, es, it, pt, nl). null: not checked.",
    )
    wanted_tone: str | None = Field(
        default=None,
        min_length=1,
        description="How the answer should sound, in words; costs one judge call per case. null: not checked.",
    )

    @classmethod
    def unused_steps(cls, parameters: Mapping[str, Any]) -> frozenset[str]:
        return frozenset(() if parameters.get("wanted_tone") else ("tone",))

    @field_validator("matches", "never_matches")
    @classmethod
    def _check_patterns(cls, patterns: dict[str, str]) -> dict[str, str]:
        for pattern in patterns.values():
            compile_timed(pattern)
        return patterns

    @field_validator("length")
    @classmethod
    def _check_length(cls, length: dict[Unit, list[int | None]] | None) -> dict[Unit, list[int | None]] | None:
        for unit, bounds in (length or {}).items():
            numbers = [number for number in bounds if number is not None]
            if len(bounds) != 2 or not numbers or numbers != sorted(numbers) or numbers[0] < 0:
                raise ValueError(f"[least, most] {unit}, one of them may be null; found {bounds}")
        return length

    @field_validator("language")
    @classmethod
    def _check_language(cls, language: str | None) -> str | None:
        if language is not None and language not in function_words():
            raise ValueError(f"one of {', '.join(sorted(function_words()))}")
        return language

    @model_validator(mode="after")
    def _checks_something(self) -> FormatMetric:
        if self.length == {} and not self._has_other_checks:
            raise ValueError("at least one check: matches, never_matches, json_schema, length, language or wanted_tone")
        return self

    @property
    def _has_other_checks(self) -> bool:
        return any((self.matches, self.never_matches, self.json_schema is not None, self.language, self.wanted_tone))

    @property
    def limits(self) -> dict[Unit, list[int | None]]:
        """The bounds of the length; empty where it is not checked."""
        if self.length is not None:
            return self.length
        return {} if self._has_other_checks else {"words": [1, 300]}

    def files(self) -> Mapping[str, str]:
        return pattern_hashes([LANGUAGES] if self.language else [])

    def explain_value(self, score: str, value: float, details: Mapping[str, Any]) -> str | None:
        held = [check for check in details.get("checks", ()) if check["held"] is not None]
        return f"{sum(check['held'] for check in held)} of {len(held)} checks held; 1 when all do" if held else None

    async def measure(self, case: Case, judge: Judge) -> Score:
        checks = await asyncio.to_thread(lambda: list(self._rule_checks(case.answer)))
        flags = answer_flags(case.answer)
        if self.wanted_tone:
            prompt, asked = self.prompts()["tone"], {"question": case.question, "answer": case.answer, "tone": self.wanted_tone}
            reply = await judge(prompt, Tone, **self.prompt_values(prompt, case, **asked))
            checks.append({"check": "tone", "held": reply.kept, "found": reply.evidence or reply.reason})
            lost = not reply.kept and not occurs(reply.evidence, [normalise(case.answer)])
            flags += ["evidence_not_found"] if lost else []
        broken = [check["check"] for check in checks if check["held"] is False]
        details = {"checks": checks, "broken": broken, "flags": flags}
        if all(check["held"] is None for check in checks):
            return Score(status="skipped", reason="language_undecided", details=details)
        return Score(float(not broken), reason=one_line(", ".join(broken)) or None, details=details)

    def _rule_checks(self, answer: str) -> Iterator[Check]:
        """The checks that need no judge. Raises JudgeError when an expression takes too long."""
        search = Search()
        for name, pattern in self.matches.items():
            yield {"check": f"matches {name}", "held": bool(search(pattern, answer, name))}
        for name, pattern in self.never_matches.items():
            match = search(pattern, answer, name)
            yield {"check": f"never_matches {name}", "held": not match, "found": one_line(match[0]) if match else ""}
        if self.json_schema is not None:
            fault = schema_fault(answer, self.json_schema, search)
            yield {"check": "json_schema", "held": fault is None, "found": one_line(fault or "")}
        size = sizes(answer)
        for unit, (least, most) in self.limits.items():
            holds = (least is None or size[unit] >= least) and (most is None or size[unit] <= most)
            yield {"check": f"length in {unit}", "held": holds, "found": size[unit], "expected": [least, most]}
        if self.language:
            code = language_of(answer)
            held = None if code is None else code == self.language
            yield {"check": "language", "held": held, "found": code, "expected": self.language}

"""The judge as one metric sees it for one case: render, ask, parse, repair once, and record every use of a reply."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from ragpipe.core.errors import JudgeError, PromptTooLong, Skipped
from ragpipe.judging.cache_key import Question
from ragpipe.judging.clients.http_responses import ODD_END, is_odd_end, replace_surrogates
from ragpipe.judging.replies.answer_parsing import Unparsable, read_answer
from ragpipe.judging.session import JudgeSession
from ragpipe.judging.shown_order import shown_order
from ragpipe.judging.token_count import PROMPT_CUT, is_cut
from ragpipe.judging.vector_replies import MATCH, STEP, Floats, TokenMatch, Vector, pair_payload, text_payload
from ragpipe.prompting.prompt import Prompt
from ragpipe.schema.call import Call, Message, Payload
from ragpipe.schema.judge_answers.answer_schema import answer_schema
from ragpipe.schema.judge_answers.answer_type import Answer
from ragpipe.schema.sample import CaseKey

A = TypeVar("A", bound=Answer)

_REPAIR = (
    "Your reply could not be read: {fault}\n"
    "Answer the same question again, with exactly the content that was asked for and in exactly the form that was asked "
    "for, and nothing else."
)


@dataclass(frozen=True, slots=True)
class JudgeCallUse:
    """One use of a reply: a row of `judge_inputs.parquet`.

    `answer` names the type that the reply is parsed into. `prompt` is None where no template was rendered: for a text
    that is embedded or a pair that is matched.
    """

    metric: str
    step: str
    turn: str
    prompt: Prompt | None
    payload: Payload
    answer: str
    call: Call
    flags: tuple[str, ...] = ()


@dataclass(slots=True)
class CaseJudge:
    """The judge as one metric sees it for one case (`ragpipe.judging.any_judge.Judge`).

    `uses` are the questions asked so far, `truncated` the texts of which the embedder read only the beginning. `repeat` is which repetition of its questions this is; None: that of
    the session.
    """

    session: JudgeSession
    case: CaseKey
    metric: str
    uses: list[JudgeCallUse] = field(default_factory=list)
    truncated: set[str] = field(default_factory=set)
    repeat: int | None = None

    async def __call__(self, prompt: Prompt, answer: type[A], /, **values: Any) -> A:
        """Render the prompt, ask it and parse the reply; an unparsable reply is repaired once."""
        seed, order = self.session.shuffle_seed, None
        if seed is not None:
            order = shown_order(prompt, values, answer, seed, self.case.sample_id)
            values = dict(order.values)
        try:
            messages = prompt.render(**values)
        except PromptTooLong as error:
            raise JudgeError("too_long", f"{self.case}: {self.metric}/{error}") from error
        payload = Payload(messages, answer_schema(answer))
        question = self._question(payload, answer, prompt)
        computed = await self.session.compute(question, prompt, values)
        call = computed or await self.session.reply(question)
        material = () if computed else _echoable_material(prompt, payload, values)
        try:
            parsed = self._read(prompt, "ask", payload, call, answer, material)
        except Unparsable as error:
            parsed = await self._repair(prompt, payload, call, answer, error, material)
        return parsed if order is None else order.restored(parsed)

    async def embed(self, texts: Sequence[str], /) -> list[Floats]:
        """One vector per text, in order; equal texts are asked once."""
        embedder = self.session.embedder
        if embedder is None:
            raise Skipped("no_embedder")
        unique = list(dict.fromkeys(texts))
        tasks = (self._embed_text(embedder, text) for text in unique)
        vectors: dict[str, Floats] = {}
        for text, result in zip(unique, await asyncio.gather(*tasks, return_exceptions=True), strict=True):
            if isinstance(result, BaseException):
                raise result
            vectors[text] = result
        return [vectors[text] for text in texts]

    def was_truncated(self, text: str, /) -> bool:
        """Whether the embedder read only the beginning of this text."""
        return text in self.truncated

    async def match(self, encoder: Any, candidate: str, reference: str, /, *, idf: bool = False) -> TokenMatch:
        """The token match of two texts. Raises Skipped (`no_corpus`) where `idf` is wanted and the run has no corpus."""
        corpus = self.session.corpus if idf else None
        if idf and corpus is None:
            raise Skipped("no_corpus")
        encoder_session = self.session.encoder_session(encoder, corpus)
        weighted_by = corpus.digest if corpus else None
        payload = pair_payload(replace_surrogates(candidate)[0], replace_surrogates(reference)[0], weighted_by)
        call = await self._reply_in_first_iteration(encoder_session, payload, TokenMatch, MATCH)
        try:
            return self._read(None, "ask", payload, call, TokenMatch)
        except Unparsable as error:
            raise JudgeError("unparsable", f"{MATCH}: {error}", text=call.text) from error

    async def _embed_text(self, embedder: JudgeSession, text: str) -> Floats:
        payload = text_payload(replace_surrogates(embedder.prefix + text)[0])
        call = await self._reply_in_first_iteration(embedder, payload, Vector, STEP)
        try:
            values: Floats = self._read(None, "ask", payload, call, Vector).values
        except Unparsable as error:
            raise JudgeError("unparsable", f"{STEP}: {error}", text=call.text) from error
        if call.finish_reason == "length":
            self.truncated.add(text)
        return values

    async def _reply_in_first_iteration(
        self, session: JudgeSession, payload: Payload, answer: type[Answer], step: str
    ) -> Call:
        """The reply to a question whose key names iteration 1: vectors and token matches depend on texts and model alone,
        so all iterations share them."""
        asker = f"{self.case} / {self.metric} / {step}"
        return await session.reply(session.question(payload, answer, 1, asker, asked_in=self.case.iteration))

    async def _repair(
        self,
        prompt: Prompt,
        payload: Payload,
        unparsable: Call,
        answer: type[A],
        error: Unparsable,
        material: Sequence[str],
    ) -> A:
        """Ask once more and say what was wrong: at temperature 0 the same question would give the same bad reply."""
        messages: list[Message] = [*payload.messages]
        messages.append({"role": "assistant", "content": unparsable.text or ""})
        messages.append({"role": "user", "content": _REPAIR.format(fault=error)})
        repair = Payload(tuple(messages), payload.schema)
        question = self._question(repair, answer, prompt)
        unread: JudgeCallUse | None = None
        for again in (False, True) if self.session.retry_errors else (False,):
            call = await self.session.reply(question, again=again)
            if unread is not None:
                self._forget(unread)
            try:
                return self._read(prompt, "repair", repair, call, answer, material)
            except Unparsable as second_error:
                error, unread = second_error, self.uses[-1]
        raise JudgeError("unparsable", f"{prompt.step}: {error} (also after one repair)", text=call.text) from error

    def _forget(self, replaced: JudgeCallUse) -> None:
        """Take back the use of a reply that another one takes the place of."""
        place = next(place for place, use in enumerate(self.uses) if use is replaced)
        del self.uses[place]
        self.session.usage.uses -= 1

    def _question(self, payload: Payload, answer: type[Answer], prompt: Prompt) -> Question:
        asker = f"{self.case} / {self.metric} / {prompt.step}"
        return self.session.question(payload, answer, self.case.iteration, asker, repeat=self.repeat)

    def _read(
        self,
        prompt: Prompt | None,
        turn: str,
        payload: Payload,
        call: Call,
        answer: type[A],
        material: Sequence[str] = (),
    ) -> A:
        """Parse a reply and record its use, whatever comes of it."""
        self.session.usage.uses += 1
        flags: tuple[str, ...] = ()
        try:
            parsed, flags = _parse(call, answer, material)
            return parsed
        except Unparsable:
            flags = ("unparsable",)
            raise
        finally:
            step = prompt.step if prompt else STEP if answer is Vector else MATCH
            served = self.session.served if prompt else None  # vectors and pairs come from another session's model
            flags += served.flags(call) if served else ()
            if served and call.status == "ok" and call.attempts and is_cut(payload.messages, call.tokens_in):
                flags += (PROMPT_CUT,)
            if served and call.status == "ok" and call.attempts and is_odd_end(call.finish_reason):
                flags += (ODD_END,)
            self.uses.append(JudgeCallUse(self.metric, step, turn, prompt, payload, answer.__name__, call, flags))


def _echoable_material(prompt: Prompt, payload: Payload, values: Mapping[str, Any]) -> Sequence[str]:
    """The texts under test that the question showed, of which a reply might be an echo: none where no message has a brace."""
    if any("{" in message["content"] for message in payload.messages):
        return prompt.material(payload.messages, values)
    return ()


def _parse(call: Call, answer: type[A], material: Sequence[str]) -> tuple[A, tuple[str, ...]]:
    """The answer in a reply, and its flags. Raises Skipped, JudgeError and Unparsable."""
    if call.status == "skipped":
        raise Skipped(call.message or "the judge cannot answer")
    if call.status != "ok":
        raise JudgeError(call.status, call.message or "the judge gave no answer", text=call.text)  # type: ignore[arg-type]
    if call.output_mode == "computed":
        return answer.model_validate_json(call.text or ""), ()
    return read_answer(call.text or "", answer, material)

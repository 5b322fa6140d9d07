"""Stage `resend`: sends the stored questions of a finished run to a judge, byte for byte, and compares old and new replies."""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import pyarrow as pa
from pydantic import ConfigDict

from ragpipe.core.errors import TRANSIENT, DataError, Problem, RagpipeError
from ragpipe.judging.replies.answer_parsing import read_answer
from ragpipe.judging.session import JudgeSession
from ragpipe.prompting.fences import fenced_values
from ragpipe.schema.call import Call, Payload
from ragpipe.schema.judge_answers.all_answers import ANSWER_TYPES
from ragpipe.schema.judge_answers.answer_type import Answer
from ragpipe.schema.sample import CaseKey
from ragpipe.schema.table_schemas import FLAG, REAL, TEXT, WHOLE, table_of
from ragpipe.store.files.parquet_writer import parquet_writer
from ragpipe.store.files.write_if_changed import open_unless_same
from ragpipe.store.run.run_tables import batches

BLOCK = 512  # questions asked and written together
_PROSE = frozenset({"reason", "evidence", "text"})
"""Parts of an answer that give reasons: two judges never word them alike."""
_COLUMNS = (
    "sample_id",
    "method",
    "repeat",
    "iteration",
    "metric",
    "step",
    "turn",
    "payload_id",
    "judge",
    "messages",
    "schema",
    "answer",
    "reply",
    "status",
    "tokens_in",
    "tokens_out",
    "output_mode",
    "wire_hash",
    "template",
)

RESENT = pa.schema(
    [
        pa.field(name, kind, metadata={"description": text})
        for name, kind, text in (
            ("payload_id", TEXT, "hash of messages and answer schema: the question"),
            ("key_new", TEXT, "key of the new reply in the call store"),
            ("sample_id", TEXT, "the sample id of the case that asked it first"),
            ("method", TEXT, "that case's RAG variant"),
            ("repeat", WHOLE, "which output of this method for this sample it was"),
            ("iteration", WHOLE, "the iteration in which it was asked first"),
            ("metric", TEXT, "the metric that asked it first"),
            ("step", TEXT, "the prompt step"),
            ("turn", TEXT, "ask, or repair: the second attempt after an unreadable reply"),
            ("judge_old", TEXT, "printable name of the judge that answered then"),
            ("judge_new", TEXT, "printable name of the judge that answers now"),
            ("status_old", TEXT, "ok, the kind of failure, or skipped"),
            ("status_new", TEXT, "ok, or the kind of failure"),
            ("message_new", TEXT, "the failure in words"),
            ("reply_old", TEXT, "the raw reply then"),
            ("reply_new", TEXT, "the raw reply now"),
            ("same_text", FLAG, "whether both replies are the same, letter for letter; null without two replies"),
            ("same_answer", FLAG, "whether both say the same, reasons and quotes aside; null where one cannot be read"),
            ("same_body", FLAG, "whether the request had the same bytes, model and parameters too; null = not known"),
            ("tokens_in_old", WHOLE, "prompt tokens then"),
            ("tokens_in_new", WHOLE, "prompt tokens now"),
            ("tokens_out_old", WHOLE, "completion tokens then"),
            ("tokens_out_new", WHOLE, "completion tokens now"),
            ("paid_usd_new", REAL, "what the new reply cost on that day; null = unknown"),
        )
    ]
)


class AnyObject(Answer):
    """A JSON answer of a type that this ragpipe does not know."""

    model_config = ConfigDict(extra="allow", frozen=True)


class AnyText(Answer):
    """A plain-text answer of a type that this ragpipe does not know."""

    form: ClassVar[Literal["json", "text"]] = "text"
    reply: str

    @classmethod
    def from_text(cls, text: str) -> Self:
        return cls(reply=text.strip())


@dataclass(frozen=True, slots=True)
class StoredQuestion:
    """A question as it was first asked: its row, its payload, and the type of its answer."""

    row: dict[str, Any]
    payload: Payload
    answer: type[Answer]

    @property
    def asker(self) -> str:
        """The case, metric and step that asked it."""
        return _asker(self.row)


def _asker(row: Mapping[str, Any]) -> str:
    return f"{CaseKey.of(row)} / {row['metric']} / {row['step']}"


def stored_questions(files: Sequence[Path]) -> Iterator[list[StoredQuestion]]:
    """The different questions of `judge_inputs.parquet` files, each where it was first asked, in blocks.

    Raises DataError for a table of another form, for questions that were not kept (`keep_messages=false`), and for a
    question that does not fit its id.
    """
    seen: set[bytes] = set()
    block: list[StoredQuestion] = []
    for path in files:
        for row in _stored_rows(path):
            name = bytes.fromhex(row["payload_id"])
            if name not in seen and row["template"] is not None:  # without one it is a text for an embedder
                seen.add(name)
                block.append(_stored_question(row, path))
            if len(block) == BLOCK:
                yield block
                block = []
    if block:
        yield block


def _stored_rows(path: Path) -> Iterator[dict[str, Any]]:
    for batch in batches(path, _COLUMNS, size=BLOCK):
        yield from batch.to_pylist()


def _stored_question(row: dict[str, Any], path: Path) -> StoredQuestion:
    if row["messages"] is None or row["schema"] is None:
        fix = "it was made with keep_messages=false: use rejudge.mode=replay"
        problem = Problem(str(path), "messages", "null", "the messages of every question", fix)
        raise DataError("this run did not keep its questions", [problem])
    try:
        # the bytes of a request follow the order of keys, which canonical JSON has sorted
        messages = [{"role": item["role"], "content": item["content"]} for item in json.loads(row["messages"])]
        payload = Payload(tuple(messages), json.loads(row["schema"]))
        payload_id = payload.id
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise _changed_question(row, path, f"no question ({type(error).__name__})") from error
    if payload_id != row["payload_id"]:
        raise _changed_question(row, path, payload_id)
    return StoredQuestion(row, payload, _answer_type(str(row["answer"]), payload.schema))


def _changed_question(row: Mapping[str, Any], path: Path, payload_id: str) -> DataError:
    fix = "messages or schema were changed: task=verify says what else was"
    problem = Problem(str(path), _asker(row), payload_id, row["payload_id"], fix)
    return DataError("a stored question was changed", [problem])


def _answer_type(name: str, schema: Mapping[str, Any]) -> type[Answer]:
    """The type of this name where it has the schema's form, else a type that takes any answer. Nothing is imported."""
    form, known = ("text" if schema.get("form") == "text" else "json"), ANSWER_TYPES.get(name)
    if known is not None and known.form == form:
        return known
    return AnyText if form == "text" else AnyObject


@dataclass(slots=True)
class ResendTally:
    """Counts of the questions of one metric's step, or of all, and of their replies."""

    questions: int = 0
    ok: int = 0
    both_replied: int = 0
    same_text: int = 0
    both_read: int = 0
    same_answer: int = 0
    body_known: int = 0
    same_body: int = 0
    failed: dict[str, int] = field(default_factory=dict)

    def add(self, row: Mapping[str, Any]) -> None:
        """Count one row of `resend.parquet`."""
        self.questions += 1
        self.ok += row["status_new"] == "ok"
        self.both_replied += row["same_text"] is not None
        self.same_text += row["same_text"] is True
        self.both_read += row["same_answer"] is not None
        self.same_answer += row["same_answer"] is True
        self.body_known += row["same_body"] is not None
        self.same_body += row["same_body"] is True
        if row["status_new"] != "ok":
            self.failed[row["status_new"]] = self.failed.get(row["status_new"], 0) + 1

    @property
    def transient(self) -> int:
        """Questions that failed for a transient reason."""
        return sum(count for kind, count in self.failed.items() if kind in TRANSIENT)


class ResendStage:
    """Sends every question once and writes `resend.parquet`. `on_change(done)` is called after each block."""

    def __init__(
        self,
        files: Sequence[Path],
        session: JudgeSession,
        target: Path,
        on_change: Callable[[int], None] = lambda _: None,
    ):
        self._files, self._session, self._target, self._on_change = files, session, target, on_change
        self._stopped: RagpipeError | None = None
        self.total = ResendTally()
        self.steps: dict[tuple[str, str], ResendTally] = defaultdict(ResendTally)

    def stop(self, why: RagpipeError) -> None:
        """Send nothing more; replies in flight still go into the call store."""
        self._stopped = self._stopped or why
        self._session.stop(why)

    def cancel(self) -> None:
        """Give up the calls in flight."""
        self._session.cancel()

    async def run(self) -> None:
        """Send all questions. Raises what stopped it early; then no table is written, and the next start finds the replies in the
        call store."""
        with open_unless_same(self._target) as file, parquet_writer(file, RESENT, compression="zstd") as writer:
            for block in stored_questions(self._files):
                replies = await asyncio.gather(*map(self._ask, block), return_exceptions=True)
                rows = []
                for stored, call in zip(block, replies, strict=True):
                    if isinstance(call, BaseException):
                        raise self._stopped or call
                    rows.append(resend_row(stored, call))
                for row in rows:
                    self.total.add(row)
                    self.steps[row["metric"], row["step"]].add(row)
                writer.write_table(table_of(rows, RESENT))
                self._on_change(self.total.questions)

    async def _ask(self, stored: StoredQuestion) -> Call:
        question = self._session.question(stored.payload, stored.answer, stored.row["iteration"], stored.asker)
        return await self._session.reply(question)


def resend_row(stored: StoredQuestion, call: Call) -> dict[str, Any]:
    """A row of `resend.parquet`."""
    old, answer = stored.row, stored.answer
    old_text = old["reply"] if old["status"] == "ok" else None
    new_text = call.text if call.status == "ok" else None
    material = fenced_values(stored.payload.messages)
    old_answer = _comparable_answer(old_text, answer, material, computed=old["output_mode"] == "computed")
    new_answer = _comparable_answer(new_text, answer, material)
    return {name: old[name] for name in RESENT.names if name in old} | {
        "key_new": call.key,
        "judge_old": old["judge"],
        "judge_new": call.judge,
        "status_old": old["status"],
        "status_new": call.status,
        "message_new": call.message,
        "reply_old": old["reply"],
        "reply_new": call.text,
        "same_text": _equal(old_text, new_text),
        "same_answer": _equal(old_answer, new_answer),
        "same_body": _equal(old["wire_hash"], call.wire_hash),
        "tokens_in_old": old["tokens_in"],
        "tokens_in_new": call.tokens_in,
        "tokens_out_old": old["tokens_out"],
        "tokens_out_new": call.tokens_out,
        "paid_usd_new": call.paid_usd,
    }


def _equal(old: Any, new: Any) -> bool | None:
    """Whether both are the same; None where one of them is not known."""
    return None if old is None or new is None else bool(old == new)


def _comparable_answer(
    text: str | None, answer: type[Answer], material: Sequence[str], *, computed: bool = False
) -> Any:
    """A reply as plain data without its prose; None for a reply that cannot be read."""
    if text is None:
        return None
    try:
        if computed and answer is not AnyText:
            parsed = answer.model_validate_json(text)
        else:
            parsed = read_answer(text, answer, material)[0]
    except ValueError:  # Unparsable and pydantic's own are both
        return None
    return _without_prose(parsed.model_dump(mode="json"))


def _without_prose(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_prose(item) for key, item in value.items() if key not in _PROSE}
    return [_without_prose(item) for item in value] if isinstance(value, list) else value

"""Answers that arrive as a stream of events: server-sent events, or one JSON value per line.

A path expression sees `events`, the list of all events, and `named`, which has the events of each `event:` name. An event is
the JSON in it, else its text. Streamed chat completions are put together: the same paths lead to the answer whether
the endpoint streams or not.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ragpipe.core.strict_json import InvalidJson, strict_loads
from ragpipe.systems.system_failures import SystemFailure

StreamForm = Literal["sse", "ndjson"]

_LINE_END = re.compile("\r\n|\n|\r")
_DONE = "[DONE]"
_CONTENT_TYPES: dict[str, StreamForm] = {
    "text/event-stream": "sse",
    "application/x-ndjson": "ndjson",
    "application/ndjson": "ndjson",
    "application/jsonl": "ndjson",
    "application/x-jsonlines": "ndjson",
    "application/stream+json": "ndjson",
}


@dataclass(frozen=True, slots=True)
class Event:
    """One event: its name, None without one, and its JSON or text."""

    name: str | None
    value: Any


def stream_form(content_type: str) -> StreamForm | None:
    """The form of a stream by its content type; None for what is no stream."""
    return _CONTENT_TYPES.get(content_type.partition(";")[0].strip().lower())


class EventReader:
    """Reads events from the bytes of a stream as they arrive."""

    def __init__(self, form: StreamForm):
        self._form = form
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")()
        self._rest = ""  # the beginning of a line
        self._name: str | None = None
        self._lines: list[str] = []  # the data lines of the event so far

    def feed(self, piece: bytes, *, final: bool = False) -> list[Event]:
        """The events that are complete with this piece. Raises SystemFailure for what is no event."""
        try:
            text = self._rest + self._decoder.decode(piece, final)
        except UnicodeDecodeError as error:
            raise SystemFailure("not_an_api_answer", f"a stream that is not UTF-8: {error}", permanent=True) from None
        held_back = "\r" if text.endswith("\r") and not final else ""  # a line feed may follow, which belongs to it
        *lines, self._rest = _LINE_END.split(text.removesuffix("\r") if held_back else text)
        self._rest += held_back
        if final:  # some servers leave out the last blank line
            lines, self._rest = [*lines, self._rest, ""], ""
        read = self._read_sse_line if self._form == "sse" else _read_json_line
        return [event for line in lines if (event := read(line)) is not None]

    def _read_sse_line(self, line: str) -> Event | None:
        """The event that a blank line ends, None for any other line."""
        if line:
            field, _, value = line.partition(":")
            value = value.removeprefix(" ")
            if field == "data":
                self._lines.append(value)
            elif field == "event":
                self._name = value or None
            return None
        name, text, has_data = self._name, "\n".join(self._lines), bool(self._lines)
        self._name, self._lines = None, []
        return Event(name, _value(text)) if has_data and text.strip() != _DONE else None


def _read_json_line(line: str) -> Event | None:
    if not line.strip() or line.strip() == _DONE:
        return None
    try:
        return Event(None, strict_loads(line))
    except InvalidJson as error:
        message = f"a line of the stream is no JSON: {error}: {line[:100]!r}"
        raise SystemFailure("not_an_api_answer", message, permanent=True) from None


def _value(text: str) -> Any:
    """The JSON of an event, where it is an object, a list or a quoted text; else the text, so that a token `42` stays one."""
    if text[:1] in ("{", "[", '"'):
        try:
            return strict_loads(text)
        except InvalidJson:
            return text
    return text


def stream_record(events: Sequence[Event]) -> dict[str, Any]:
    """What path expressions see of a stream: `events`, `named`, and a chat completion put together where it is one. Raises
    SystemFailure for an event that reports an error."""
    named: dict[str, list[Any]] = {}
    for event in events:
        if event.name is not None:
            named.setdefault(event.name, []).append(event.value)
    values = [event.value for event in events]
    for value in values:
        if isinstance(value, dict) and value.get("error") and not value.get("choices"):
            raise SystemFailure("server_error", f"an error in the stream: {str(value['error'])[:200]}")
    return {**_completion(values), "events": values, "named": named}


def _completion(values: Sequence[Any]) -> dict[str, Any]:
    """The chat completion that the chunks of a stream make up; empty where they are none."""
    chunks = [value for value in values if isinstance(value, dict) and isinstance(value.get("choices"), list)]
    choices = [choice for chunk in chunks for choice in chunk["choices"] if isinstance(choice, Mapping)]
    first = [choice for choice in choices if choice.get("index", 0) == 0 and isinstance(choice.get("delta"), Mapping)]
    if not first:
        return {}
    message: dict[str, Any] = {}
    for choice in first:
        for name, value in choice["delta"].items():
            message[name] = _joined(message.get(name), value) if name != "role" else value
    finish = next((choice["finish_reason"] for choice in reversed(first) if choice.get("finish_reason")), None)
    rest = {name: value for chunk in chunks for name, value in chunk.items() if value is not None and name != "choices"}
    return {**rest, "choices": [{"index": 0, "message": message, "finish_reason": finish}]}


def _joined(before: Any, value: Any) -> Any:
    """Two pieces of a streamed field: texts and lists are put together, of other values the later one counts."""
    if before is None or value is None:
        return before if value is None else value
    if isinstance(before, str) and isinstance(value, str):
        return before + value
    return [*before, *value] if isinstance(before, list) and isinstance(value, list) else value

"""An HTTP endpoint as the system under test: the request of a question, and the output in its response."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn
from urllib.parse import urlencode

from ragpipe.core.digest import canonical_json
from ragpipe.core.errors import ConfigError, Problem
from ragpipe.core.strict_json import InvalidJson, strict_loads
from ragpipe.datasets.path_expressions import BadExpression, Expression
from ragpipe.judging.clients.client import AttemptError
from ragpipe.judging.clients.http_layer import HttpConnections, IncomingResponse
from ragpipe.judging.clients.http_responses import is_unbilled, retry_after, without_query
from ragpipe.judging.clients.proxies import proxy_for
from ragpipe.judging.redaction import Redactor
from ragpipe.schema.sample import Sample
from ragpipe.systems.answer_shapes import answer_keys, suggested_fields, yaml_line
from ragpipe.systems.event_streams import Event, EventReader, StreamForm, stream_form, stream_record
from ragpipe.systems.framework_answers import fields_of_result
from ragpipe.systems.header_secrets import header_secrets
from ragpipe.systems.questions import question_fields
from ragpipe.systems.settings import FIELDS_OF_ANSWER, HttpSystem
from ragpipe.systems.system_failures import SystemFailure, failure_of_attempt, kind_of_status

ANSWER_LIMIT = 16 << 20  # bytes of one HTTP answer
_EXCERPT = 200  # characters of a response in a message
_LISTED = 12  # keys in a message


class HttpEndpoint:
    """Asks one endpoint. Cookies are never sent back and redirects never followed; header values come from the environment."""

    def __init__(self, settings: HttpSystem):
        self._settings = settings
        self._body = {key: Expression(path) for key, path in settings.body.items()}
        self._fields = {key: Expression(path) for key, path in settings.fields.items()}
        self._headers = _headers(settings)
        self._scrub = Redactor(header_secrets(self._headers, in_messages=True))
        self._scrub_answer = Redactor(header_secrets(self._headers, in_messages=False))
        self._struck: dict[str, None] = {}
        self._note_of_first: str | None = None  # what of the first answer is left out; "" for nothing
        self._connections: HttpConnections | None = None
        proxy = proxy_for(settings.url)
        if proxy is not None and not proxy.is_http:
            raise _unusable(
                "url",
                f"the proxy {proxy}",
                "an HTTP proxy, whose URL begins with http:// or https://",
                "correct the variable, or list the endpoint's host in NO_PROXY",
            )

    async def answer(self, sample: Sample) -> Mapping[str, Any]:
        """The output in the response to one question. Raises SystemFailure."""
        if self._connections is None:
            self._connections = HttpConnections(self._settings.concurrency, ANSWER_LIMIT)
        url, headers, body = self._request(sample)
        started = time.monotonic()
        try:
            async with self._connections.exchange(
                self._settings.http_method, url, headers=headers, body=body
            ) as response:
                if not 200 <= response.status < 300:
                    self._raise_status(response, await response.body())
                record, first_token = await self._record(response, started)
        except AttemptError as error:
            raise failure_of_attempt(error) from None
        output = self._output(record)
        if first_token is not None:
            output["timings"] = {"first_token": first_token, **(output.get("timings") or {})}
        return self._without_secrets(output, sample.id)

    def _request(self, sample: Sample) -> tuple[str, dict[str, str], bytes]:
        """URL, headers and body of the request. A key whose path leads to nothing is left out."""
        fields = question_fields(sample, self._settings.params)
        values = {key: value for key, path in self._body.items() if (value := path(fields)) is not None}
        if self._settings.http_method == "POST":
            return self._settings.url, {**self._headers, "Content-Type": "application/json"}, _json_bytes(values)
        query = urlencode(
            {key: value if isinstance(value, str) else canonical_json(value) for key, value in values.items()}
        )
        joint = "&" if "?" in self._settings.url else "?"
        return f"{self._settings.url}{joint}{query}", self._headers, b""

    async def _record(self, response: IncomingResponse, started: float) -> tuple[Any, float | None]:
        """What the paths of `fields` see, and the milliseconds to the first piece of the answer in a stream."""
        content_type = response.headers.get("Content-Type", "")
        form = stream_form(content_type) if self._settings.stream == "auto" else self._settings.stream
        if form in ("sse", "ndjson"):
            return await self._stream(response, form, content_type, started)
        return self._json(await response.body(), content_type), None

    def _json(self, raw: bytes, content_type: str) -> Any:
        try:
            return strict_loads(raw.decode("utf-8-sig"))
        except (InvalidJson, UnicodeDecodeError) as error:
            text = raw.decode("utf-8", "replace")
            what = f"no JSON ({error}), content type {content_type or 'not named'}: {self._scrub(text)[:_EXCERPT]!r}"
            fix = ""
            if text.lstrip().startswith(("data:", "event:", ":")):
                fix = "the endpoint streams server-sent events: system.stream=sse"
            elif _is_json_lines(text):
                fix = "the endpoint streams one JSON object per line: system.stream=ndjson"
            raise self._wrong_shape(what, "one JSON object", fix) from None

    async def _stream(
        self, response: IncomingResponse, form: StreamForm, content_type: str, started: float
    ) -> tuple[dict[str, Any], float | None]:
        reader, events, first_token = EventReader(form), list[Event](), None
        async for piece in response.pieces():
            for event in reader.feed(piece):
                events.append(event)
                if first_token is None and self._gives_text(event):
                    first_token = round((time.monotonic() - started) * 1000, 3)
        events += reader.feed(b"", final=True)
        if not events:
            raise self._wrong_shape(
                f"a response without an event, content type {content_type or 'not named'}",
                f"a stream of events ({form})",
                "system.stream=json for a response that is one JSON object",
            )
        return stream_record(events), first_token

    def _gives_text(self, event: Event) -> bool:
        """Whether the answer begins with this event."""
        path = self._fields.get("answer")
        if path is None:
            return False  # without `fields` there is no answer in single events
        try:
            return bool(path(stream_record([event])))
        except (BadExpression, SystemFailure):
            return False

    def _output(self, record: Any) -> dict[str, Any]:
        """The fields of the output. Raises SystemFailure when no answer stands where `fields` says, unless the system says
        that it abstained or what went wrong."""
        try:
            output = {key: value for key, path in self._fields.items() if (value := path(record)) is not None}
        except BadExpression as error:
            raise self._wrong_shape(
                answer_keys(record), f"what system.fields reads ({error})", _fields_fix(record)
            ) from None
        path = self._fields.get("answer")
        if not self._fields:
            output, path = self._own_fields(record), Expression("answer")
        if path is None or "answer" in output or output.get("abstained") or output.get("error"):
            return output
        expected = f"an answer at `{path.text}`"
        if isinstance(record, Mapping) and path.text in record:  # null: this question may have no answer
            raise SystemFailure("not_an_api_answer", f"no answer at `{path.text}`: null", permanent=True)
        raise self._wrong_shape(answer_keys(record), expected, _fields_fix(record), f"no answer at `{path.text}`; ")

    def _own_fields(self, record: Any) -> dict[str, Any]:
        """What of a response is a field of an output, by its own name or as a framework's answer; null is absent."""
        if not isinstance(record, Mapping):
            return {}
        named = {key: value for key, value in fields_of_result(record).items() if value is not None}
        output = {key: value for key, value in named.items() if key in FIELDS_OF_ANSWER}
        if "chunks" in output:
            output.pop("contexts", None)
        if self._note_of_first is None and "answer" in output:
            self._note_of_first = _left_out_note([key for key in named if key not in output], output, record)
        return output

    def _wrong_shape(self, what: str, expected: str, fix: str, opening: str = "") -> SystemFailure:
        what = self._scrub(what)
        problem = Problem(self._settings.url, "system.fields", what, expected, fix)
        return SystemFailure(
            "not_an_api_answer", f"{opening}found {what}; expected {expected}"[:500], permanent=True, problem=problem
        )

    def _raise_status(self, response: IncomingResponse, raw: bytes) -> NoReturn:
        """Raises the failure behind a status that is no success."""
        status, url = response.status, self._settings.url
        excerpt = self._scrub(raw.decode("utf-8", "replace"))[:_EXCERPT]
        target = self._scrub(response.headers.get("Location", ""))[:_EXCERPT]
        moved = f" (a redirect to {target!r}, which is not followed)" if target else ""
        message = f"HTTP {status} from {url}{moved}: {excerpt!r}"
        raise SystemFailure(
            kind_of_status(status),
            message,
            retry_after=retry_after({name.lower(): value for name, value in response.headers.items()}),
            unbilled=is_unbilled(status),
            problem=self._problem_of_status(status, message, target),
        )

    def _problem_of_status(self, status: int, message: str, target: str) -> Problem | None:
        """What must be changed, where every question would be answered with this status."""
        if 300 <= status < 400:
            fix = f"system.url={without_query(target)}" if "://" in target else "give the address it leads to"
            return Problem(self._settings.url, "system.url", message, "an answer: headers are meant for one host", fix)
        if status in (401, 403):
            return Problem(self._settings.url, "system.headers_env", message, "a key that is accepted", self._key_fix())
        if status in (404, 410):
            return Problem(
                self._settings.url, "system.url", message, "an endpoint at this address", "correct the address"
            )
        if status == 405:
            other = "GET" if self._settings.http_method == "POST" else "POST"
            asked = f"an endpoint that takes {self._settings.http_method}"
            return Problem(self._settings.url, "system.http_method", message, asked, f"system.http_method={other}")
        return None

    def _key_fix(self) -> str:
        variables = [name for name in (self._settings.bearer_env, *self._settings.headers_env.values()) if name]
        if variables:
            return f"check the value of the environment variable {' and '.join(variables)}"
        return "system.bearer_env=NAME, or system.headers_env: {HEADER: NAME}, with the NAME of a variable that holds the key"

    def _without_secrets(self, output: dict[str, Any], sample_id: str) -> dict[str, Any]:
        """The output without header values: some servers repeat what they were sent."""
        clean: dict[str, Any] = _replaced(output, self._scrub_answer)
        if clean != output:
            self._struck[sample_id] = None
        return clean

    @property
    def notes(self) -> Sequence[str]:
        """What was left out of the first answer, and what was changed in any: header values that were struck out."""
        left_out = [self._scrub(self._note_of_first)] if self._note_of_first else []
        if not self._struck:
            return left_out
        names = list(self._struck)
        first = ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
        return [
            *left_out,
            f"{len(names):,} answers repeat a value of system.headers_env that looks secret; *** stands there "
            f"instead ({first})",
        ]

    async def close(self) -> None:
        """Close the connections."""
        if self._connections is not None:
            await self._connections.close()
            self._connections = None


def _headers(settings: HttpSystem) -> dict[str, str]:
    """The headers with their values. Raises ConfigError for a variable that is not set."""
    headers = {}
    if settings.bearer_env is not None:
        headers["Authorization"] = f"Bearer {_variable('bearer_env', settings.bearer_env)}"
    for header, variable in settings.headers_env.items():
        headers[header] = _variable(f"headers_env.{header}", variable)
    return headers


def _variable(key: str, name: str) -> str:
    if name in os.environ:
        return os.environ[name]
    raise _unusable(key, f"no environment variable {name}", "its name, with the variable set", f"export {name}=...")


def _unusable(key: str, actual: str, expected: str, fix: str) -> ConfigError:
    return ConfigError(
        "the system under test cannot be used", [Problem("system", f"system.{key}", actual, expected, fix)]
    )


def _json_bytes(values: Mapping[str, Any]) -> bytes:
    from pydantic_core import to_json

    return to_json(values)


def _left_out_note(names: Sequence[str], output: Mapping[str, Any], record: Any) -> str:
    """The note on keys of an answer that are no field of an output, with the line that takes contexts from one of them."""
    if not names:
        return ""
    shown = ", ".join(map(str, names[:_LISTED])) + (", ..." if len(names) > _LISTED else "")
    fields = suggested_fields(record)
    hint = "" if "chunks" in output or "contexts" in output or "contexts" not in fields else f"; {yaml_line(fields)}"
    return f"of the first answer these keys are no field of an output and are not read: {shown}{hint}"


def _fields_fix(record: Any) -> str:
    fields = suggested_fields(record)
    return yaml_line(fields) if fields else "system.fields: {answer: PATH}, with the path of the answer in the response"


def _is_json_lines(text: str) -> bool:
    lines = [line for line in text.splitlines() if line.strip()]
    return len(lines) > 1 and all(line.lstrip().startswith("{") for line in lines)


def _replaced(value: Any, scrub: Redactor) -> Any:
    """A plain value with every text in it scrubbed."""
    if isinstance(value, str):
        return scrub(value)
    if isinstance(value, dict):
        return {_replaced(key, scrub): _replaced(item, scrub) for key, item in value.items()}
    if isinstance(value, list):
        return [_replaced(item, scrub) for item in value]
    return value

"""An HTTP endpoint as the system under test: the request of a question, and the output in its response."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NoReturn
from urllib.parse import urlencode

from pydantic_core import to_json

from ragpipe.core.digest import canonical_json
from ragpipe.core.errors import ConfigError, Problem
from ragpipe.core.sample import Sample
from ragpipe.core.secrets import Redactor, looks_random, looks_secret
from ragpipe.core.strict_json import InvalidJson, strict_loads
from ragpipe.data.expressions import BadExpression, Expression
from ragpipe.data.live_system import SystemFailure, answer_keys, failure_of_attempt, kind_of_status, suggested_fields, yaml_line
from ragpipe.data.python_system import fields_of_result
from ragpipe.data.system_settings import FIELDS_OF_ANSWER, HttpSystem, question_fields
from ragpipe.judge.client import AttemptError
from ragpipe.judge.http import HttpConnections, HttpResponse, proxy_for
from ragpipe.judge.http_responses import is_unbilled, retry_after, without_query

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
            expected = "an HTTP proxy, whose URL begins with http:// or https://"
            fix = "correct the variable, or list the endpoint's host in NO_PROXY"
            raise _unusable("url", f"the proxy {proxy}", expected, fix)

    async def answer(self, sample: Sample) -> Mapping[str, Any]:
        """The output in the response to one question. Raises SystemFailure."""
        if self._connections is None:
            self._connections = HttpConnections(self._settings.concurrency, ANSWER_LIMIT)
        url, headers, body = self._request(sample)
        try:
            response = await self._connections.send(self._settings.http_method, url, headers=headers, body=body)
            if not 200 <= response.status < 300:
                self._raise_status(response)
            output = self._output(self._json(response.body, response.headers.get("Content-Type", "")))
        except AttemptError as error:
            raise failure_of_attempt(error) from None
        clean: dict[str, Any] = _replaced(output, self._scrub_answer)  # some servers repeat header values that they were sent
        if clean != output:
            self._struck[sample.id] = None
        return clean

    def _request(self, sample: Sample) -> tuple[str, dict[str, str], bytes]:
        """URL, headers and body of the request. A key whose path leads to nothing is left out."""
        fields = question_fields(sample, self._settings.params)
        values = {key: value for key, path in self._body.items() if (value := path(fields)) is not None}
        if self._settings.http_method == "POST":
            return self._settings.url, {**self._headers, "Content-Type": "application/json"}, to_json(values)
        texts = {key: value if isinstance(value, str) else canonical_json(value) for key, value in values.items()}
        query = urlencode(texts)
        joint = "&" if "?" in self._settings.url else "?"
        return f"{self._settings.url}{joint}{query}", self._headers, b""

    def _json(self, raw: bytes, content_type: str) -> Any:
        try:
            return strict_loads(raw.decode("utf-8-sig"))
        except (InvalidJson, UnicodeDecodeError) as error:
            text = raw.decode("utf-8", "replace")
            what = f"no JSON ({error}), content type {content_type or 'not named'}: {self._scrub(text)[:_EXCERPT]!r}"
            is_stream = "event-stream" in content_type or text.lstrip().startswith(("data:", "event:", ":"))
            fix = "the endpoint streams: ask it for a whole answer (often stream: false in system.body)" if is_stream else ""
            raise self._wrong_shape(what, "one JSON object", fix) from None

    def _output(self, record: Any) -> dict[str, Any]:
        try:
            output = {key: value for key, path in self._fields.items() if (value := path(record)) is not None}
        except BadExpression as error:
            expected = f"what system.fields reads ({error})"
            raise self._wrong_shape(answer_keys(record), expected, _fields_fix(record)) from None
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
        message = f"{opening}found {what}; expected {expected}"[:500]
        return SystemFailure("not_an_api_answer", message, permanent=True, problem=problem)

    def _raise_status(self, response: HttpResponse) -> NoReturn:
        """Raises the failure behind a status that is no success."""
        status, url = response.status, self._settings.url
        excerpt = self._scrub(response.body.decode("utf-8", "replace"))[:_EXCERPT]
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
            return Problem(self._settings.url, "system.url", message, "an endpoint at this address", "correct the address")
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
    problem = Problem("system", f"system.{key}", actual, expected, fix)
    return ConfigError("the system under test cannot be used", [problem])


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


def _replaced(value: Any, scrub: Redactor) -> Any:
    """A plain value with every text in it scrubbed."""
    if isinstance(value, str):
        return scrub(value)
    if isinstance(value, dict):
        return {_replaced(key, scrub): _replaced(item, scrub) for key, item in value.items()}
    if isinstance(value, list):
        return [_replaced(item, scrub) for item in value]
    return value


_SECRET_HEADER = re.compile(r"(?i)auth|key|token|secret|cookie|passw|credential|signature|session")
_WORDS = re.compile(r"(?:[A-Z]?[a-z]{0,18}|[A-Z]{1,19})(?:[-_./](?:[A-Z]?[a-z]{0,18}|[A-Z]{1,19}))*\Z")
_NAMES = re.compile(r"(?:[A-Z]?[a-z]{0,18}|[A-Z]{1,19})\d{0,8}(?:[-_./:](?:[A-Z]?[a-z]{0,18}|[A-Z]{1,19})\d{0,8})*\Z")


def header_secrets(headers: Mapping[str, str], *, in_messages: bool) -> Iterator[str]:
    """What of the headers' values must not be written down, for a Redactor.

    Of a header whose name says that it is secret: every word, also without its scheme (`Bearer`); in answers (not `in_messages`)
    only what is no ordinary word, because `none` and `anything` stand in honest answers. Of another header only what is
    surely random: `X-Tenant: production` and `X-Index: wiki-2018` stand in honest answers, too.
    """
    for header, value in headers.items():
        secret = _SECRET_HEADER.search(header) is not None
        for word in (value, *value.split()):
            random = looks_random(word)
            if secret:
                is_secret = in_messages or random or not (" " in word or _WORDS.match(word))
            else:
                is_secret = random and (looks_secret(word) is not None or not _NAMES.match(word))
            if is_secret:
                yield word

"""Why a live system gave no usable answer, and what can be done about it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from ragpipe.core.errors import FailureKind, Problem
from ragpipe.judging.clients.client import AttemptError

PASSING_STATUSES = frozenset({408, 425, 429})
"""Client errors of HTTP that another request may not meet; with them all server errors but `_NEVER_PASSING`."""
_NEVER_PASSING = frozenset({501, 505})
_TRANSPORT_ERRORS = frozenset(
    {
        "APIConnectionError",  # openai, anthropic
        "ClientConnectionError",  # aiohttp
        "ConnectionError",  # requests has one of its own
        "Timeout",  # requests
        "TransportError",  # httpx
    }
)
"""Names of classes, one of which is among the bases of the connection errors of the customary HTTP libraries."""


class SystemFailure(AttemptError):
    """One request to the system gave no usable answer.

    `problem` is what must be changed where every question would fail alike: a wrong shape, a refused key, a redirect. None
    where the failure may be this question's own.
    """

    def __init__(
        self,
        kind: FailureKind,
        message: str,
        *,
        retry_after: float | None = None,
        no_connection: bool = False,
        permanent: bool = False,
        unbilled: bool = False,
        problem: Problem | None = None,
    ):
        super().__init__(
            kind, message, retry_after=retry_after, no_connection=no_connection, permanent=permanent, unbilled=unbilled
        )
        self.problem = problem


def failure_of_attempt(error: AttemptError) -> SystemFailure:
    """A failure of the HTTP layer as one of the system."""
    if isinstance(error, SystemFailure):
        return error
    failure = SystemFailure(
        error.kind,
        error.message,
        retry_after=error.retry_after,
        no_connection=error.no_connection,
        permanent=error.permanent,
        unbilled=error.unbilled,
    )
    failure.overload = error.overload
    return failure


def kind_of_status(status: int) -> FailureKind:
    """The kind of failure behind an HTTP status other than success. Only `rate_limit` and `server_error` may pass."""
    if status == 429:
        return "rate_limit"
    if status in PASSING_STATUSES or (status >= 500 and status not in _NEVER_PASSING):
        return "server_error"
    if status == 401:
        return "auth"
    return "unreachable" if 300 <= status < 400 else "bad_request"


def failure_of_exception(error: BaseException) -> SystemFailure:
    """What an exception of a Python system means. It may pass, and the callable is called again, for a ConnectionError, a
    TimeoutError, the connection errors of the customary HTTP libraries, a passing HTTP status in `status_code` (of the
    exception or its `response`), and any exception with a number of seconds in `retry_after`. Any other is permanent."""
    message = f"{type(error).__name__}: {error}"[:500]
    status, wait = _status_of(error), _retry_after_of(error)
    if status is not None:
        kind = kind_of_status(status)
        return SystemFailure("bad_request" if kind in ("auth", "unreachable") else kind, message, retry_after=wait)
    if wait is not None:
        return SystemFailure("rate_limit", message, retry_after=wait)
    names = {base.__name__ for base in type(error).__mro__}
    if isinstance(error, ConnectionError | TimeoutError) or names & _TRANSPORT_ERRORS:
        return SystemFailure("network", message)
    return SystemFailure("bad_request", message)


def _status_of(error: BaseException) -> int | None:
    for holder in (error, getattr(error, "response", None)):
        status = getattr(holder, "status_code", None)
        if isinstance(status, int) and not isinstance(status, bool) and 300 <= status < 600:
            return status
    return None


def _retry_after_of(error: BaseException) -> float | None:
    seconds = getattr(error, "retry_after", None)
    if isinstance(seconds, int | float) and not isinstance(seconds, bool) and 0 <= seconds < 1e9:
        return float(seconds)
    headers = getattr(getattr(error, "response", None), "headers", None)
    if headers is None or not hasattr(headers, "items"):
        return None
    from ragpipe.judging.clients.http_responses import retry_after

    return retry_after({str(name).lower(): str(value) for name, value in headers.items()})


ANSWER_NAMES = (
    "answer",
    "result",
    "response",
    "output_text",
    "output",
    "text",
    "content",
    "message",
    "reply",
    "generation",
)
CONTEXT_NAMES = (
    "contexts",
    "context",
    "source_documents",
    "documents",
    "docs",
    "sources",
    "source_nodes",
    "hits",
    "chunks",
    "passages",
    "retrieved_contexts",
    "retrieved_documents",
    "references",
    "results",
)
TEXT_NAMES = ("text", "content", "page_content", "body", "passage", "chunk", "snippet", "document")
_TOKEN_NAMES = ("token", "delta", *ANSWER_NAMES)
_ID_NAMES = ("id", "chunk_id", "doc_id", "url")
_PLAIN = re.compile(r"[A-Za-z_]\w*")
_DEPTH, _LISTED = 3, 12


def answer_keys(value: Any) -> str:
    """The keys of an answer with the types of their values: `data.text: text, data.hits: list of 3 objects (id, body)`."""
    if not isinstance(value, Mapping):
        return _type_name(value)
    parts = [f"{path}: {_type_name(item)}" for path, item in _leaves(value, "", _DEPTH)]
    more = f", and {len(parts) - _LISTED} more" if len(parts) > _LISTED else ""
    return ", ".join(parts[:_LISTED]) + more if parts else "an empty object"


def suggested_fields(value: Any) -> dict[str, str]:
    """Paths to what looks like an answer and contexts: a value for `system.fields`; empty where nothing does."""
    if not isinstance(value, Mapping):
        return {}
    events = value.get("events")
    if isinstance(events, list) and "choices" not in value:
        return _fields_of_named(value.get("named")) | _fields_of_events(events)
    leaves = list(_leaves(value, "", _DEPTH))
    fields = {}
    if path := _first_named(leaves, ANSWER_NAMES, str):
        fields["answer"] = path
    if path := _first_named(leaves, CONTEXT_NAMES, list):
        items = next(item for name, item in leaves if name == path)
        fields["contexts"] = path + _element_path(items)
    return fields


def yaml_line(fields: Mapping[str, str]) -> str:
    """The line of YAML that reads an output by these paths."""
    inner = ", ".join(f"{name}: {_quoted(path)}" for name, path in fields.items())
    return f"fields: {{{inner}}}"


def _fields_of_events(events: list[Any]) -> dict[str, str]:
    if all(isinstance(event, str) for event in events):
        return {"answer": "join('', events)"}
    objects = [event for event in events if isinstance(event, Mapping)]
    fields = {}
    for name in _TOKEN_NAMES:
        if any(isinstance(event.get(name), str) for event in objects):
            fields["answer"] = f"join('', events[].{_key(name)})"
            break
    for name in CONTEXT_NAMES:
        lists = [event[name] for event in objects if isinstance(event.get(name), list)]
        if lists:
            fields["contexts"] = f"events[].{_key(name)}[]" + _element_path(lists[0]).removeprefix("[]")
            break
    return fields


def _fields_of_named(named: Any) -> dict[str, str]:
    """Paths into the events of a name: texts that make the answer, and an event that is the list of what was retrieved."""
    if not isinstance(named, Mapping):
        return {}
    fields = {}
    for name in _TOKEN_NAMES:
        if (pieces := named.get(name)) and all(isinstance(piece, str) for piece in pieces):
            fields["answer"] = f"join('', named.{name})"
            break
    for name in CONTEXT_NAMES:
        if (lists := named.get(name)) and isinstance(lists[0], list):
            fields["contexts"] = f"named.{name}[0]{_element_path(lists[0])}"
            break
    return fields


def _leaves(value: Mapping[str, Any], prefix: str, depth: int) -> Iterator[tuple[str, Any]]:
    for name, item in value.items():
        path = f"{prefix}{_key(str(name))}"
        if isinstance(item, Mapping) and item and depth > 1:
            yield from _leaves(item, f"{path}.", depth - 1)
        else:
            yield path, item


def _first_named(leaves: list[tuple[str, Any]], names: tuple[str, ...], kind: type) -> str | None:
    for name in names:
        for path, item in leaves:
            if path.rpartition(".")[2] == name and isinstance(item, kind):
                return path
    return None


def _element_path(items: list[Any]) -> str:
    """What to add to the path of a list so that each element is a text or a chunk."""
    first = items[0] if items else None
    if not isinstance(first, Mapping):
        return ""
    text = next((name for name in TEXT_NAMES if isinstance(first.get(name), str)), None)
    if text is None:
        return ""
    name = next((name for name in _ID_NAMES if isinstance(first.get(name), str)), None)
    return f"[].{{id: {_key(name)}, text: {_key(text)}}}" if name else f"[].{_key(text)}"


def _type_name(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"an object ({', '.join(map(str, list(value)[:6]))})" if value else "an empty object"
    if isinstance(value, list):
        if not value:
            return "an empty list"
        inner = value[0]
        names = f" ({', '.join(map(str, list(inner)[:6]))})" if isinstance(inner, Mapping) else ""
        kind = "objects" if isinstance(inner, Mapping) else "texts" if isinstance(inner, str) else "values"
        return f"list of {len(value)} {kind}{names}"
    names_of_types: dict[type, str] = {
        str: "text",
        bool: "true/false",
        int: "number",
        float: "number",
        type(None): "null",
    }
    return names_of_types.get(type(value), type(value).__name__)


def _key(name: str) -> str:
    return name if _PLAIN.fullmatch(name) else '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _quoted(path: str) -> str:
    return path if re.fullmatch(r"[\w.]+", path) else '"' + path.replace("\\", "\\\\").replace('"', '\\"') + '"'

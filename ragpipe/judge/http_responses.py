"""What an HTTP response means: a usable completion, or an error with its kind. The order of the checks matters.

Status first, then whether it is an API response at all, then the finish reason (a cut or filtered completion is never
parsed), then the content.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from contextlib import suppress
from email.utils import parsedate_to_datetime
from typing import Any

from ragpipe.core.errors import FailureKind
from ragpipe.judge.client import ApiResponse, AttemptError, Completion

_QUOTA_CODES = frozenset({"insufficient_quota", "billing_hard_limit_reached", "quota_exceeded"})
_RATE_CODES = frozenset({"rate_limit_exceeded", "rate_limit_error", "rate_limit_reached", "too_many_requests"})
_QUOTA = re.compile(r"exceeded your current quota|billing|credit balance|out of credits", re.I)
_AGAIN_IN = re.compile(
    r"\b(?:try again|retry) (?:in|after) ((?:\d+(?:\.\d+)? ?(?:ms|[hms]|(?:hour|minute|second)s?)\s*)+)", re.I
)
_CONCURRENCY = re.compile(
    r"concurren|simultaneous|(requests|calls) (in flight|in parallel|at once)|parallel (requests|calls)", re.I
)
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_GOOGLE_DELAY = re.compile(r"(\d{1,9}(?:\.\d+)?)s")
_TOO_LONG = re.compile(
    r"context_length_exceeded|maximum context length|context window|context length|context size|maximum model length|prompt is too long"
    r"|input is too long|too many (input )?tokens|maximum number of tokens|exceeds? the (model'?s )?(maximum|limit)",
    re.I,
)
_FILTERED = re.compile(r"content_filter|content management policy|content policy|responsible ?ai|safety system", re.I)
_TO_TLS = re.compile(r"HTTP request (was )?sent to (an )?HTTPS|plain HTTP to an SSL", re.I)  # nginx, Go; Apache
_FORM = re.compile(r"response_format|json_schema|json_object|structured output|guided_json|json mode", re.I)
_REFUSED = re.compile(
    r"not support|unsupported|unknown|unrecogni[sz]ed|only the default|not permitted|not allowed|not enabled|extra inputs", re.I
)
_SYSTEM = re.compile(
    r"system (?:role|messages?|prompts?|instructions?)|developer instructions?|role\W{0,4}system|'system' with this model", re.I
)  # Gemma's template at vLLM, Gemini, o1 at OpenAI
_OUR_PARAMETERS = ("max_tokens", "temperature", "seed", "reasoning_effort")
MAX_TEXT = 1_000_000
"""Characters of a completion. A judge's answer has a few thousand, a vector of 65,536 numbers 350,000."""
_MAX_TOKENS = (1 << 40) - 1  # in one usage
_CUT = frozenset({"length", "max_tokens", "max_output_tokens", "max_completion_tokens", "max_length", "model_length"})
_HELD_BACK = frozenset({"content_filter", "safety", "recitation", "blocklist", "prohibited_content", "spii"})
_FAILED = frozenset({"error", "failed"})
_ENDED = frozenset(
    {"stop", "end_turn", "stop_sequence", "eos", "eos_token", "complete", "completed", "done", "none", "null", ""}
)
"""Finish reasons, in lower case: OpenAI's, and what gateways pass on of Gemini, Mistral, Cohere, Anthropic and OpenRouter."""
ODD_END = "odd_end"
"""Flag of a reply whose finish reason is not known: it may not be whole."""
_DOLLARS_MAX = 1e6
_OTHER_FIELDS = ("reasoning_content", "reasoning", "thinking", "tool_calls", "function_call", "audio")
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


def parse_response(response: ApiResponse) -> Completion:
    """The completion in a response. Raises AttemptError when it has none that may be read as the judge's answer."""
    data = response.data
    if not 200 <= response.status < 300:
        error = _status_error(response)
        error.partial = (billed_usage(data) if isinstance(data, dict) else None) or {}
        error.unbilled = is_unbilled(response.status) and not error.partial
        raise error
    if not isinstance(data, dict):
        raise AttemptError("not_an_api_answer", f"not an API answer (a proxy?): {_excerpt(response.text or data)}")
    choices = data.get("choices")
    if data.get("error") and not choices:
        message = f"an error in an answer with status {response.status}: {_excerpt(_error_body(data)[0])}"
        raise AttemptError("not_an_api_answer", message, partial=billed_usage(data))
    choice = choices[0] if isinstance(choices, list) and choices else None
    if not isinstance(choice, dict) or not isinstance(choice.get("message"), dict):
        message = f"not an API answer (a proxy?), no message in it: {_excerpt(data)}"
        raise AttemptError("not_an_api_answer", message, partial=billed_usage(data))
    return _completion(choice, data)


def _completion(choice: dict[str, Any], data: dict[str, Any]) -> Completion:
    message = choice["message"]
    text, notes = _text(message.get("content"))
    finish, mark = choice.get("finish_reason"), data.get("system_fingerprint")
    metadata: dict[str, Any] = {
        "finish_reason": replace_surrogates(finish)[0] if isinstance(finish, str) else None,
        "model": replace_surrogates(model)[0] if isinstance(model := data.get("model"), str) and model.strip() else None,
        "fingerprint": replace_surrogates(mark)[0][:200] if isinstance(mark, str) and mark else None,
        **_usage(data.get("usage"), has_text=bool(text) and data.get("object") != "embedding"),
    }
    reason = str(finish).lower()
    if len(text) > MAX_TEXT:
        too_long = f"the reply has {len(text):,} characters: more than {MAX_TEXT:,} are not read"
        raise AttemptError("unparsable", too_long, partial=metadata)
    partial = {**metadata, "text": text or None}
    if (failure := data.get("error") or choice.get("error")) or reason in _FAILED:
        cause = _excerpt(_error_body({"error": failure})[0] or failure or f"finish_reason {reason}")
        raise AttemptError("server_error", f"the provider marks its reply as failed: {cause}", partial=partial)
    if reason in _CUT:
        raise AttemptError("cut_short", "the reply was cut off by judge.max_tokens: raise it", partial=partial)
    if reason in _HELD_BACK:
        raise AttemptError("refused", "the provider's content filter held the reply back", partial=partial)
    refusal = message.get("refusal")
    if refusal:
        refused = {**partial, "text": text or str(refusal)}
        raise AttemptError("refused", f"the model refused: {_excerpt(refusal)}", partial=refused)
    if not text.strip():
        elsewhere = [f"message.{name}" for name in _OTHER_FIELDS if message.get(name)]
        where = f"; {' and '.join(elsewhere)} is not empty, and is not read" if elsewhere else ""
        # the server's reasoning or tool parser took it: it would again, and every try is paid
        permanent = bool(elsewhere)
        raise AttemptError("empty_reply", f"the reply has no text{where}", partial=partial, permanent=permanent)
    return Completion(text, notes=notes, **metadata)


def is_odd_end(finish: str | None) -> bool:
    """Whether a finish reason is none of those that say that a reply is whole; a reply that names none is not odd."""
    return finish is not None and finish.lower() not in _ENDED


def is_unbilled(status: int) -> bool:
    """Whether a status says that the request was refused before any work on it. A gateway may hide an answer that is billed
    behind any 5xx but those that say that there is no room."""
    return status < 500 or status in _OVERLOADED


def _status_error(response: ApiResponse) -> AttemptError:
    status, (text, codes) = response.status, _error_body(response.data)
    if status == 400 and _TO_TLS.search(response.text):
        return AttemptError("unreachable", "a TLS server: its address begins with https://", no_connection=True)
    if 300 <= status < 400:
        target = without_query(response.headers.get("location", "an unnamed place"))
        return AttemptError("unreachable", f"status {status}, a redirect to {target}; redirects are not followed")
    message = _status_message(response, text)
    if kind := _KIND_OF_STATUS.get(status):
        return AttemptError(kind, message)
    wait = retry_after(response.headers)
    if status == 429:
        delay, quota = _google_details(response.data)
        wait = next((seconds for seconds in (wait, delay, asked_to_wait(text)) if seconds is not None), None)
        if quota is not None:
            return AttemptError("quota", f"{message} ({quota}: it is back tomorrow)")
        if _is_quota_exhausted(codes, text, wait):
            return AttemptError("quota", message)
        overload = _CONCURRENCY.search(" ".join((*codes, text))) is not None
        return AttemptError("rate_limit", message, retry_after=wait, overload=overload)
    if status in (408, 409, 425) or status >= 500:
        return AttemptError("server_error", message, retry_after=wait, overload=status in _OVERLOADED)
    return _rejected_request(status, " ".join((*codes, text)), response.data, message)


_OVERLOADED = (503, 529)  # the second is Anthropic's
_KIND_OF_STATUS: dict[int, FailureKind] = {401: "auth", 403: "auth", 402: "quota", 404: "model_not_found"}


def _status_message(response: ApiResponse, text: str) -> str:
    """The status, and the error's text or else the beginning of a response that is no HTML page."""
    status = f"status {response.status}"
    if text:
        return f"{status}: {_excerpt(text)}"
    is_html = "html" in response.headers.get("content-type", "") or response.text.lstrip()[:1] == "<"
    return status if is_html else f"{status}: {_excerpt(response.text)}"


def _rejected_request(status: int, text: str, data: Any, message: str) -> AttemptError:
    if _FILTERED.search(text):
        return AttemptError("refused", message)
    if status == 413 or _TOO_LONG.search(text):
        return AttemptError("too_long", message)
    parameter, is_named = _refused_parameter(text, _named_parameter(data))
    return AttemptError("bad_request", message, refused_parameter=parameter, names_parameter=is_named)


def _is_quota_exhausted(codes: tuple[str, ...], text: str, wait: float | None) -> bool:
    if _QUOTA_CODES & set(codes):
        return True
    return not _RATE_CODES & set(codes) and wait is None and _QUOTA.search(text) is not None


def _google_details(data: Any) -> tuple[float | None, str | None]:
    """Of a 429 by Google the seconds of `retryDelay`, and the name of an exhausted quota per day; None for neither."""
    error = _error_in(data)
    details = error.get("details") if isinstance(error, dict) else None
    delay, quota = None, None
    for detail in details if isinstance(details, list) else ():
        if not isinstance(detail, dict):
            continue
        if isinstance(detail.get("retryDelay"), str) and (match := _GOOGLE_DELAY.fullmatch(detail["retryDelay"])):
            delay = float(match[1])
        violations = detail.get("violations")
        for violation in violations if isinstance(violations, list) else ():
            name = violation.get("quotaId") if isinstance(violation, dict) else None
            if isinstance(name, str) and "PerDay" in name:
                quota = name[:200]
    return delay, quota


def asked_to_wait(text: str) -> float | None:
    """Seconds that the text of a 429 asks to wait (`Please try again in 1m20s`); None where it does not say."""
    match = _AGAIN_IN.search(text)
    if match is None:
        return None
    parts = re.findall(r"(\d+(?:\.\d+)?) ?(ms|[hms])", match[1].lower())
    return sum(float(number) * _SECONDS[unit] for number, unit in parts)


def _refused_parameter(text: str, named: str | None) -> tuple[str | None, bool]:
    """The parameter that a 400 refuses, and whether the error names it in a field of its own."""
    if _SYSTEM.search(text) and _REFUSED.search(text) and named in (None, "messages"):
        return "system_role", False
    if named is not None:
        return (named, True) if named in (*_OUR_PARAMETERS, "response_format") else (None, False)
    if _FORM.search(text):
        return "response_format", False
    if _REFUSED.search(text):
        return next((name for name in _OUR_PARAMETERS if re.search(rf"\b{name}\b", text)), None), False
    return None, False


def _named_parameter(data: Any) -> str | None:
    """The parameter that an error body names: `error.param`, without a path inside it."""
    error = _error_in(data)
    param = error.get("param") if isinstance(error, dict) else None
    return re.split(r"[.\[]", param)[0] if isinstance(param, str) and param else None


def retry_after(headers: Mapping[str, str], now: float | None = None) -> float | None:
    """Seconds that the headers ask to wait: `retry-after-ms`, or `retry-after` in seconds or as an HTTP date. Such a date is by the clock
    of the server, so it is compared with the `date` of the response, and with this machine's clock where there is none."""
    try:
        if "retry-after-ms" in headers:
            seconds = float(headers["retry-after-ms"]) / 1000
        elif "retry-after" not in headers:
            return None
        elif re.fullmatch(r"\s*\d+(\.\d+)?\s*", headers["retry-after"]):
            seconds = float(headers["retry-after"])
        else:
            when = parsedate_to_datetime(headers["retry-after"]).timestamp()
            seconds = when - _sent_at(headers, time.time() if now is None else now) + 1  # the date has whole seconds
    except (ValueError, TypeError, OverflowError):
        return None
    return seconds if 0 <= seconds < 1e9 else 0.0 if seconds < 0 else None


def _sent_at(headers: Mapping[str, str], now: float) -> float:
    """When the server sent these headers, by its own clock where they say so."""
    with suppress(KeyError, ValueError, TypeError, OverflowError):
        return parsedate_to_datetime(headers["date"]).timestamp()
    return now


def billed_usage(data: dict[str, Any]) -> dict[str, Any] | None:
    """The usage of a response that is otherwise unusable: where it names one, the provider bills it."""
    usage = _usage(data.get("usage"), has_text=False)
    return usage if "tokens_in" in usage or "usd" in usage else None


def _usage(usage: Any, *, has_text: bool) -> dict[str, Any]:
    """The token counts, and as `usd` the provider's own price; `usage_reason` where there are none to be believed."""
    if not isinstance(usage, dict):
        return {"usage_reason": "the reply names no usage"}
    cost = usage.get("cost", 0)  # of OpenRouter, in dollars; 0 where another account is billed
    is_number = isinstance(cost, int | float) and not isinstance(cost, bool)
    price = {"usd": cost} if is_number and 0 < cost <= _DOLLARS_MAX else {}
    named = (usage.get("prompt_tokens", usage.get("input_tokens")), usage.get("completion_tokens", usage.get("output_tokens")))
    tokens_in, tokens_out = map(_count, named)
    total = _count(usage.get("total_tokens"))
    if tokens_in and tokens_out is None and total is not None and total >= tokens_in:
        tokens_out = total - tokens_in
    if not tokens_in or tokens_out is None or (has_text and not tokens_out):
        return {**price, "usage_reason": f"the reply's usage is no count of tokens: {_excerpt(named)}"}
    thoughts = _part(usage, "completion_tokens_details", "reasoning_tokens")
    beside = max(0, total - tokens_in - tokens_out) if total is not None else 0
    if total is None and (thoughts or 0) > tokens_out:
        beside = thoughts or 0
    if beside:  # thoughts that `completion_tokens` does not count, and that are billed as output
        tokens_out, thoughts = tokens_out + beside, thoughts or beside
    cached = _at_most(_part(usage, "prompt_tokens_details", "cached_tokens", "prompt_cache_hit_tokens"), tokens_in)
    written = _part(usage, "prompt_tokens_details", "cache_creation_tokens", "cache_write_tokens")
    return {
        **price,
        "tokens_in": tokens_in,
        "tokens_out": tokens_out,
        "tokens_cached": cached,
        "tokens_written": _at_most(written, tokens_in - (cached or 0)),
        "tokens_reasoning": _at_most(thoughts, tokens_out),
    }


def _part(usage: dict[str, Any], details: str, *names: str) -> int | None:
    """A count among the details of a usage, or beside them; None where it is under none of these names."""
    inner = usage.get(details)
    places = (inner if isinstance(inner, dict) else {}, usage)
    counts = (_count(place.get(name)) for place in places for name in names)
    return next((count for count in counts if count is not None), None)


def _at_most(count: int | None, most: int) -> int | None:
    """A count that is part of a total; None where it is larger than the total."""
    return count if count is not None and count <= most else None


def _count(value: Any) -> int | None:
    """A count as a whole number; some gateways write 100.0 or "100"."""
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < 16:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _MAX_TOKENS or value % 1:
        return None
    return int(value)


def replace_surrogates(text: str) -> tuple[str, int]:
    """The text without NUL and lone surrogates (each becomes U+FFFD), and how many there were."""
    return _UNSTORABLE.subn("\ufffd", text)


def _text(content: Any) -> tuple[str, tuple[str, ...]]:
    if isinstance(content, list):  # parts, as some gateways give them
        content = "".join(str(p.get("text") or "") for p in content if isinstance(p, dict))
    if not isinstance(content, str):
        return "", ()
    text, replaced = replace_surrogates(content)
    return text, (f"{replaced} characters that cannot be stored were replaced",) if replaced else ()


def _error_in(data: Any) -> Any:
    """The error in a body, or the body itself where nothing in it is called so."""
    if isinstance(data, list) and len(data) == 1:  # from Gemini's OpenAI-compatible endpoint
        data = data[0]
    return data.get("error", data) if isinstance(data, dict) else None


def _error_body(data: Any) -> tuple[str, tuple[str, ...]]:
    """Message and codes of an error body, in any of the forms that servers use."""
    error = _error_in(data)
    if isinstance(error, dict):
        text = error.get("message") or error.get("detail") or ""
        codes = (error.get("code"), error.get("type"), error.get("status"))
        return str(text), tuple(code for code in codes if isinstance(code, str) and code)
    return (error, ()) if isinstance(error, str) else ("", ())


def _excerpt(value: Any) -> str:
    """The first 200 characters, on one line and without control characters."""
    return replace_surrogates(" ".join(str(value).split()))[0][:200]


def without_query(url: str) -> str:
    """A URL that may be printed: without user, password, query and fragment."""
    return re.sub(r"//[^/@]*@", "//", re.split(r"[?#]", url, maxsplit=1)[0])[:200]

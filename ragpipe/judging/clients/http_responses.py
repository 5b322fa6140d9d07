"""What an HTTP answer means: a usable reply, or a fault with its kind. The order of the checks matters.

Status first, then whether it is an API answer at all, then the finish reason (a cut or filtered reply is never parsed),
then the content.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any

from ragpipe.judging.clients.client import ApiResponse, AttemptError, Completion

_QUOTA_CODES = frozenset({"insufficient_quota", "billing_hard_limit_reached", "quota_exceeded"})
_RATE_CODES = frozenset({"rate_limit_exceeded", "rate_limit_error", "rate_limit_reached", "too_many_requests"})
_QUOTA = re.compile(r"exceeded your current quota|billing|credit balance|out of credits", re.I)
_AGAIN_IN = re.compile(
    r"\b(?:try again|retry) (?:in|after) ((?:\d+(?:\.\d+)? ?(?:ms|[hms]|(?:hour|minute|second)s?)\s*)+)", re.I
)
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_TOO_LONG = re.compile(
    r"context_length_exceeded|maximum context length|context window|context length|prompt is too long"
    r"|input is too long|too many (input )?tokens|maximum number of tokens|exceeds? the (model'?s )?(maximum|limit)",
    re.I,
)
_FILTERED = re.compile(r"content_filter|content management policy|content policy|responsible ?ai|safety system", re.I)
_TO_TLS = re.compile(r"HTTP request (was )?sent to (an )?HTTPS|plain HTTP to an SSL", re.I)  # nginx, Go; Apache
_FORM = re.compile(r"response_format|json_schema|json_object|structured output|guided_json|json mode", re.I)
_REFUSED = re.compile(
    r"not support|unsupported|unknown|unrecogni[sz]ed|only the default|not permitted|not allowed|extra inputs", re.I
)
MAX_TEXT = 1_000_000
"""Characters of a reply; an answer of a judge has some thousands, and a vector of 65,536 numbers 350,000."""
_MOST = (1 << 40) - 1  # tokens of one reply
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


def parse_response(reply: ApiResponse) -> Completion:
    """The content of an answer. Raises AttemptError when it has none that may be read as the judge's answer."""
    if reply.status != 200:
        raise _refusal(reply)
    data = reply.data
    if not isinstance(data, dict):
        raise AttemptError("not_an_api_answer", f"not an API answer (a proxy?): {_shown(reply.text or data)}")
    choices = data.get("choices")
    if data.get("error") and not choices:
        told = f"an error in an answer with status 200: {_shown(_error(data)[0])}"
        raise AttemptError("not_an_api_answer", told, reply=billed(data))
    choice = choices[0] if isinstance(choices, list) and choices else None
    message = choice.get("message") if isinstance(choice, dict) else None
    if not isinstance(choice, dict) or not isinstance(message, dict):
        told = f"not an API answer (a proxy?), no message in it: {_shown(data)}"
        raise AttemptError("not_an_api_answer", told, reply=billed(data))
    return _checked(choice, message, data)


def _checked(choice: dict[str, Any], message: dict[str, Any], data: dict[str, Any]) -> Completion:
    text, notes = _text(message.get("content"))
    finish = choice.get("finish_reason")
    beside: dict[str, Any] = {
        "finish_reason": finish if isinstance(finish, str) else None,
        "model": data.get("model") if isinstance(data.get("model"), str) else None,
        "fingerprint": _fingerprint(data.get("system_fingerprint")),
        **_usage(data.get("usage")),
    }
    if len(text) > MAX_TEXT:
        told = f"the reply has {len(text):,} characters: more than {MAX_TEXT:,} are not read"
        raise AttemptError("unparsable", told, reply=beside)
    kept = {**beside, "text": text or None}
    if finish in ("length", "max_tokens"):
        raise AttemptError("cut_short", "the reply was cut off by judge.max_tokens: raise it", reply=kept)
    if finish == "content_filter":
        raise AttemptError("refused", "the provider's content filter held the reply back", reply=kept)
    refusal = message.get("refusal")
    if refusal:
        raise AttemptError(
            "refused", f"the model refused: {_shown(refusal)}", reply={**kept, "text": text or str(refusal)}
        )
    if not text.strip():
        raise AttemptError("empty_reply", "the reply has no text", reply=kept)
    return Completion(text, notes=notes, **beside)


def _refusal(reply: ApiResponse) -> AttemptError:
    """The fault behind a status other than 200."""
    status, (text, codes) = reply.status, _error(reply.data)
    whole = " ".join((*codes, text))
    told = f"status {status}" + (f": {_shown(text)}" if text else "" if _is_html(reply) else f": {_shown(reply.text)}")
    if status == 400 and _TO_TLS.search(reply.text):
        return AttemptError("unreachable", "a TLS server: its address begins with https://", connect=True)
    if 300 <= status < 400:
        place = without_query(reply.headers.get("location", "an unnamed place"))
        return AttemptError("unreachable", f"status {status}, a redirect to {place}; redirects are not followed")
    if status in (401, 403):
        return AttemptError("auth", told)
    if status == 402:
        return AttemptError("quota", told)
    if status == 404:
        return AttemptError("model_not_found", told)
    wait = retry_after(reply.headers)
    if status == 429:
        wait = asked_to_wait(text) if wait is None else wait
        return (
            AttemptError("quota", told)
            if _used_up(codes, text, wait)
            else AttemptError("rate_limit", told, retry_after=wait)
        )
    if status in (408, 409, 425) or status >= 500:
        return AttemptError("server_error", told, retry_after=wait)
    if _FILTERED.search(whole):
        return AttemptError("refused", told)
    if status == 413 or _TOO_LONG.search(whole):
        return AttemptError("too_long", told)
    refuses, named = _parameter(whole, _named(reply.data))
    return AttemptError("bad_request", told, refuses=refuses, named=named)


def _used_up(codes: tuple[str, ...], text: str, wait: float | None) -> bool:
    """Whether a 429 says that the account is used up. Many a limit that passes within a minute speaks of quotas and
    billing too: the error's code decides, then whether it says how long to wait."""
    if _QUOTA_CODES & set(codes):
        return True
    return not _RATE_CODES & set(codes) and wait is None and _QUOTA.search(text) is not None


def asked_to_wait(text: str) -> float | None:
    """Seconds that the words of a 429 ask to wait (`Please try again in 1m20s`)."""
    found = _AGAIN_IN.search(text)
    if found is None:
        return None
    parts = re.findall(r"(\d+(?:\.\d+)?) ?(ms|[hms])", found[1].lower())
    return sum(float(number) * _SECONDS[unit] for number, unit in parts)


_OURS = ("max_tokens", "temperature", "top_p", "seed")


def _parameter(text: str, named: str | None) -> tuple[str | None, bool]:
    """The parameter that a 400 refuses, and whether it names it in a field of its own. Its text may repeat a question."""
    if named is not None:
        return (named, True) if named in (*_OURS, "response_format") else (None, False)
    if _FORM.search(text):
        return "response_format", False
    if _REFUSED.search(text):
        return next((n for n in _OURS if re.search(rf"\b{n}\b", text)), None), False
    return None, False


def _named(data: Any) -> str | None:
    """The parameter that an error body names: `error.param`, without what stands below it."""
    error = data.get("error") if isinstance(data, dict) else None
    param = error.get("param") if isinstance(error, dict) else None
    return re.split(r"[.\[]", param)[0] if isinstance(param, str) and param else None


def retry_after(headers: Mapping[str, str], now: float | None = None) -> float | None:
    """Seconds that the provider asks to wait: `retry-after-ms`, or `retry-after` in seconds or as an HTTP date."""
    try:
        if "retry-after-ms" in headers:
            seconds = float(headers["retry-after-ms"]) / 1000
        elif "retry-after" not in headers:
            return None
        elif re.fullmatch(r"\s*\d+(\.\d+)?\s*", headers["retry-after"]):
            seconds = float(headers["retry-after"])
        else:
            when = parsedate_to_datetime(headers["retry-after"]).timestamp()
            seconds = when - (time.time() if now is None else now) + 1  # the date is cut to whole seconds
    except (ValueError, TypeError, OverflowError):
        return None
    return seconds if 0 <= seconds < 1e9 else 0.0 if seconds < 0 else None


def billed(data: dict[str, Any]) -> dict[str, Any] | None:
    """The usage of an answer that cannot be read otherwise: what names one is on the provider's bill."""
    usage = _usage(data.get("usage"))
    return usage if "tokens_in" in usage else None


def _usage(usage: Any) -> dict[str, Any]:
    """The counts of tokens; only a reason when the numbers cannot be believed."""
    if not isinstance(usage, dict):
        return {"usage_reason": "the reply names no usage"}
    found = usage.get("prompt_tokens"), usage.get("completion_tokens")
    into, out = (_count(n, _MOST) for n in found)
    if into is None or out is None:
        return {"usage_reason": f"the reply's usage is no count of tokens: {_shown(found)}"}
    return {
        "tokens_in": into,
        "tokens_out": out,
        "tokens_cached": _part(usage, "prompt_tokens_details", "cached_tokens", into),
        "tokens_reasoning": _part(usage, "completion_tokens_details", "reasoning_tokens", out),
    }


def _part(usage: dict[str, Any], details: str, name: str, whole: int) -> int | None:
    """A count that is a part of another one, None where it is not named or cannot be one."""
    found = usage.get(details)
    return _count(found.get(name), whole) if isinstance(found, dict) else None


def _count(value: Any, most: int) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= most else None


def _fingerprint(value: Any) -> str | None:
    return replace_surrogates(value)[0][:200] if isinstance(value, str) and value else None


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


def _error(data: Any) -> tuple[str, tuple[str, ...]]:
    """Message and codes of an error body, in the forms that servers have for it."""
    if isinstance(data, list) and len(data) == 1:  # as Gemini's OpenAI-compatible endpoint gives it
        data = data[0]
    error = data.get("error", data) if isinstance(data, dict) else None
    if isinstance(error, dict):
        text = error.get("message") or error.get("detail") or data.get("detail") or ""
        codes = (error.get("code"), error.get("type"), error.get("status"))
        return str(text), tuple(code for code in codes if isinstance(code, str) and code)
    return (error, ()) if isinstance(error, str) else ("", ())


def _is_html(reply: ApiResponse) -> bool:
    return "html" in reply.headers.get("content-type", "") or reply.text.lstrip()[:1] == "<"


def _shown(value: Any) -> str:
    """The first 200 characters, on one line and without control characters."""
    return replace_surrogates(" ".join(str(value).split()))[0][:200]


def without_query(url: str) -> str:
    """A URL that may be shown: without user, password, query and fragment."""
    return re.sub(r"//[^/@]*@", "//", re.split(r"[?#]", url, maxsplit=1)[0])[:200]

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

from ragpipe.judging.clients.base import Content, Fault, Reply

_QUOTA = re.compile(r"insufficient_quota|exceeded your current quota|billing|credit balance|out of credits", re.I)
_TOO_LONG = re.compile(
    r"context_length_exceeded|maximum context length|context window|context length|prompt is too long"
    r"|input is too long|too many (input )?tokens|maximum number of tokens|exceeds? the (model'?s )?(maximum|limit)", re.I
)  # fmt: skip
_FILTERED = re.compile(r"content_filter|content management policy|content policy|responsible ?ai|safety system", re.I)
_FORM = re.compile(r"response_format|json_schema|json_object|structured output|guided_json|json mode", re.I)
_REFUSED = re.compile(
    r"not support|unsupported|unknown|unrecogni[sz]ed|only the default|not permitted|not allowed|extra inputs", re.I
)
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


def read_reply(reply: Reply) -> Content:
    """The content of an answer. Raises Fault when it has none that may be read as the judge's answer."""
    if reply.status != 200:
        raise _refusal(reply)
    data = reply.data
    if not isinstance(data, dict):
        raise Fault("not_an_api_answer", f"not an API answer (a proxy?): {_shown(reply.text or data)}")
    choices = data.get("choices")
    if data.get("error") and not choices:
        raise Fault("not_an_api_answer", f"an error in an answer with status 200: {_shown(_error(data)[0])}")
    choice = choices[0] if isinstance(choices, list) and choices else None
    message = choice.get("message") if isinstance(choice, dict) else None
    if not isinstance(choice, dict) or not isinstance(message, dict):
        raise Fault("not_an_api_answer", f"not an API answer (a proxy?), no message in it: {_shown(data)}")
    return _checked(choice, message, data)


def _checked(choice: dict[str, Any], message: dict[str, Any], data: dict[str, Any]) -> Content:
    text, notes = _text(message.get("content"))
    finish = choice.get("finish_reason")
    tokens_in, tokens_out, cached, reason = _usage(data.get("usage"))
    beside: dict[str, Any] = {
        "finish_reason": finish if isinstance(finish, str) else None,
        "model": data.get("model") if isinstance(data.get("model"), str) else None,
        "tokens_in": tokens_in, "tokens_out": tokens_out, "tokens_cached": cached, "usage_reason": reason,
    }  # fmt: skip
    kept = {**beside, "text": text or None}
    if finish in ("length", "max_tokens"):
        raise Fault("cut_short", "the reply was cut off by judge.max_tokens: raise it", reply=kept)
    if finish == "content_filter":
        raise Fault("refused", "the provider's content filter held the reply back", reply=kept)
    refusal = message.get("refusal")
    if refusal:
        raise Fault("refused", f"the model refused: {_shown(refusal)}", reply={**kept, "text": text or str(refusal)})
    if not text.strip():
        raise Fault("empty_reply", "the reply has no text", reply=kept)
    return Content(text, notes=notes, **beside)


def _refusal(reply: Reply) -> Fault:
    """The fault behind a status other than 200."""
    status, (text, code) = reply.status, _error(reply.data)
    whole = f"{code or ''} {text}"
    told = f"status {status}" + (f": {_shown(text)}" if text else "" if _is_html(reply) else f": {_shown(reply.text)}")
    wait = retry_after(reply.headers)
    if 300 <= status < 400:
        place = without_query(reply.headers.get("location", "an unnamed place"))
        return Fault("unreachable", f"status {status}, a redirect to {place}; redirects are not followed")
    if status in (401, 403):
        return Fault("auth", told)
    if status == 402 or (status == 429 and _QUOTA.search(whole)):
        return Fault("quota", told)
    if status == 404:
        return Fault("model_not_found", told)
    if status == 429:
        return Fault("rate_limit", told, retry_after=wait)
    if status in (408, 409, 425) or status >= 500:
        return Fault("server_error", told, retry_after=wait)
    if _FILTERED.search(whole):
        return Fault("refused", told)
    if status == 413 or _TOO_LONG.search(whole):
        return Fault("too_long", told)
    return Fault("bad_request", told, refuses=_parameter(whole))


def _parameter(text: str) -> str | None:
    """The parameter that a 400 speaks of, when it says that it is not taken."""
    if _FORM.search(text):
        return "response_format"
    if _REFUSED.search(text):
        return next((n for n in ("max_tokens", "temperature", "top_p", "seed") if re.search(rf"\b{n}\b", text)), None)
    return None


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


def _usage(usage: Any) -> tuple[int | None, int | None, int | None, str | None]:
    """Tokens in, out and cached; None for all with a reason when the numbers cannot be believed."""
    if not isinstance(usage, dict):
        return None, None, None, "the reply names no usage"
    found = usage.get("prompt_tokens"), usage.get("completion_tokens")
    if not all(isinstance(n, int) and not isinstance(n, bool) and 0 <= n < 1 << 40 for n in found):
        return None, None, None, f"the reply's usage is no count of tokens: {_shown(found)}"
    details = usage.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, dict) else None
    believable = isinstance(cached, int) and not isinstance(cached, bool) and 0 <= cached <= found[0]  # type: ignore[operator]
    return found[0], found[1], cached if believable else None, None


def storable(text: str) -> tuple[str, int]:
    """The text without NUL and lone surrogates (each becomes U+FFFD), and how many there were."""
    return _UNSTORABLE.subn("\ufffd", text)


def _text(content: Any) -> tuple[str, tuple[str, ...]]:
    if isinstance(content, list):  # parts, as some gateways give them
        content = "".join(str(p.get("text") or "") for p in content if isinstance(p, dict))
    if not isinstance(content, str):
        return "", ()
    text, replaced = storable(content)
    return text, (f"{replaced} characters that cannot be stored were replaced",) if replaced else ()


def _error(data: Any) -> tuple[str, str | None]:
    """Message and code of an error body, in the forms that servers have for it."""
    error = data.get("error", data) if isinstance(data, dict) else None
    if isinstance(error, dict):
        text = error.get("message") or error.get("detail") or data.get("detail") or ""
        code = error.get("code") or error.get("type")
        return str(text), str(code) if code else None
    return (error, None) if isinstance(error, str) else ("", None)


def _is_html(reply: Reply) -> bool:
    return "html" in reply.headers.get("content-type", "") or reply.text.lstrip()[:1] == "<"


def _shown(value: Any) -> str:
    """The first 200 characters, on one line and without control characters."""
    return storable(" ".join(str(value).split()))[0][:200]


def without_query(url: str) -> str:
    """A URL that may be shown: without user, password, query and fragment."""
    return re.sub(r"//[^/@]*@", "//", re.split(r"[?#]", url, maxsplit=1)[0])[:200]

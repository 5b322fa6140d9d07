"""Keeps API keys out of everything that ragpipe writes, prints or raises."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import Any
from urllib.parse import quote

from ragpipe.core.secret_detection import looks_secret

HIDDEN = "<hidden: it looks like a secret>"
_MASK = "***"
_SHORTEST = 8  # a shorter "key" (EMPTY, none, test) is no secret, and redacting it would garble replies
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,79}\Z")


def has_key_form(value: Any) -> bool:
    """Whether a value has the form of some provider's keys."""
    return isinstance(value, str) and looks_secret(value) is not None


def looks_like_key(text: str) -> bool:
    """Whether a text looks like an API key, a token, or a URL with a password, rather than a name or a path."""
    text = text.strip()
    if has_key_form(text):
        return True
    if "://" in text:
        return "@" in text.split("://", 1)[1].split("/", 1)[0]
    if len(text) < 20 or not re.fullmatch(r"[A-Za-z0-9+/=_-]+", text):
        return False
    digits, mixed = sum(c.isdigit() for c in text), text.lower() != text != text.upper()
    longest = max(len(part) for part in re.split(r"[-_/]", text))
    return longest >= 20 and (digits >= 3 or mixed)


def is_variable_name(text: str) -> bool:
    """Whether a text can be the name of an environment variable and is no key."""
    return bool(_NAME.match(text)) and not looks_like_key(text)


def hide_secrets(value: Any) -> Any:
    """The same plain value with every text that looks like a secret replaced: for error messages about settings."""
    if isinstance(value, str):
        return HIDDEN if looks_like_key(value) else value
    if isinstance(value, dict):
        return {name: hide_secrets(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [hide_secrets(item) for item in value]
    return value


class Redactor:
    """Replaces the given secrets in a text by `***`, also in their percent-encoded form.

    For answers and replies pass only secrets that `ragpipe.core.secret_detection.looks_random`.
    """

    def __init__(self, secrets: Iterable[str | None]):
        spellings = {secret.strip() for secret in secrets if secret and len(secret.strip()) >= _SHORTEST}
        spellings |= {quote(secret, safe="") for secret in spellings}
        longest_first = sorted(spellings, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, longest_first))) if spellings else None

    def __call__(self, text: str) -> str:
        return self._pattern.sub(_MASK, text) if self._pattern else text


def provider_secrets(provider: str) -> list[str]:
    """Values of the environment variables a provider's library reads by itself (`ANTHROPIC_API_KEY`, `AWS_...`)."""
    heads = {"bedrock": "AWS_", "sagemaker": "AWS_", "vertex_ai": "GOOGLE_"}.get(provider, provider.upper() + "_")
    secret = re.compile(r"KEY|TOKEN|SECRET|PASSWORD")
    return [value for name, value in os.environ.items() if name.startswith(heads) and secret.search(name)]

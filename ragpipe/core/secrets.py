"""Recognises values that look like keys or passwords, so that they are refused before anything is written.

A secret is described, never returned.
"""

from __future__ import annotations

import math
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import quote

from ragpipe.core.errors import Problem
from ragpipe.core.settings import ConfigOrigins

_PATTERNS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("an API key (sk-...)", re.compile(r"(?<![A-Za-z0-9])sk-[A-Za-z0-9_\-]{12,}")),
    ("an AWS access key", re.compile(r"(?<![A-Z0-9])A[KS]IA[0-9A-Z]{16}(?![0-9A-Z])")),
    ("a Google API key", re.compile(r"AIza[0-9A-Za-z_\-]{30,}")),
    ("a GitHub token", re.compile(r"(?<![A-Za-z0-9])(gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,})")),
    ("a GitLab token", re.compile(r"(?<![A-Za-z0-9])glpat-[A-Za-z0-9_\-]{16,}")),
    ("a Hugging Face token", re.compile(r"(?<![A-Za-z0-9])hf_[A-Za-z0-9]{20,}")),
    ("a Slack token", re.compile(r"(?<![A-Za-z0-9])xox[abprs]-[A-Za-z0-9\-]{10,}")),
    ("a provider's API key", re.compile(r"(?<![A-Za-z0-9])(gsk_|r8_|pplx-|xai-|nvapi-|tvly-|fw_)[A-Za-z0-9_\-]{20,}")),
    ("a bearer token", re.compile(r"(?i)\bbearer\s+[A-Za-z0-9._\-]{12,}")),
    ("a JSON web token", re.compile(r"eyJ[A-Za-z0-9_\-]{8,}\.eyJ[A-Za-z0-9_\-]{8,}\.")),
    ("a private key", re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----")),
    ("a URL with a password in it", re.compile(r"(?i)\b[a-z][a-z0-9+.\-]*://[^\s/@:]*:(?!\d{1,5}/)[^\s@]+@")),
    (
        "a connection string with a password in it",
        re.compile(
            r"(?i)(?<![A-Za-z0-9_])(pwd|password|passwd|account\s?key|shared\s?access\s?(key|signature)|client[_\s]?secret|secret)"
            r"\s*=\s*(?!\s|[;,&]|\$\{|\*{3})[^;,&\s]{3,}"
        ),
    ),
    ("a URL with a key in its query", re.compile(r"(?i)[?&](api[_-]?key|key|token|access_token|sig)=[^&\s]{8,}")),
)
_SECRET_NAME = re.compile(
    r"(?i)(^|[._\-])(api[_\-]?key|apikey|access[_\-]?key|secret([_\-]?key)?|password|passwd|token|auth[_\-]?token"
    r"|access[_\-]?token|authorization|credentials?)$"
)
_SECRET_ENDINGS = (
    "key", "token", "secret", "password", "passwd", "passphrase", "pwd", "credential", "credentials", "dsn", "auth",
)  # fmt: skip
_SECRET_WORDS = {
    *_SECRET_ENDINGS, "keys", "tokens", "secrets", "passwords", "pass", "cred", "creds", "authorization", "bearer",
    "cookie", "connstr", "private", "pat", "jwt", "sas",
}  # fmt: skip
_LOCATION_WORDS = frozenset({"file", "path", "dir", "name", "env"})  # OPENAI_KEY_FILE holds where a key is, not the key
_COUNT_WORDS = frozenset({"max", "min", "n", "num", "total", "limit", "budget"})  # MAX_TOKENS
_NOT_SECRET = frozenset({"PWD", "OLDPWD"})  # the working directory
_VARIABLE_NAME_KEY = re.compile(r"_env($|\.)")  # api_key_env, headers_env.Authorization
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}\Z")
FIX = "write the *name* of an environment variable (judge.api_key_env=OPENAI_API_KEY) and set that variable"


def is_secret_name(name: str) -> bool:
    """Whether the name of an environment variable says that its value is secret, in any case of letters.

    One of its words (separated by `_`, `-`, `.` or a capital) is `key`, `token`, `secret`, `password`, `passwd`, `passphrase`,
    `pwd`, `pass`, `credential`, `auth`, `authorization`, `bearer`, `cookie`, `dsn`, `private`, `pat`, `jwt`, `sas`, or ends
    in one of the longer ones (`OPENAIKEY`), or it names a connection string. Not secret are names of places (`..._FILE`,
    `_PATH`, `_DIR`, `_NAME`, `_ENV`), counts (`MAX_TOKENS`), `PWD` and `OLDPWD`.
    """
    if name in _NOT_SECRET:
        return False
    words = [word.lower() for word in re.split(r"[^A-Za-z0-9]+|(?<=[a-z0-9])(?=[A-Z])", name) if word]
    if not words or words[-1] in _LOCATION_WORDS:
        return False
    if words[-1] == "tokens" and _COUNT_WORDS & set(words):
        return False
    if "connectionstring" in "".join(words) or ({"connection", "conn"} & set(words) and {"string", "str"} & set(words)):
        return True
    return any(word in _SECRET_WORDS or word.endswith(_SECRET_ENDINGS) for word in words)


def secrets_of_environment(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Value -> name of the environment variables whose names say that they are secret (`is_secret_name`).

    Only values that do not occur in ordinary text by chance: 12 characters or more, and neither a path that exists nor
    the name of another variable.
    """
    environ = os.environ if environ is None else environ
    return {
        value: name
        for name, value in environ.items()
        if len(value) >= 12 and is_secret_name(name) and value not in environ and not _is_a_path(value)
    }


def _is_a_path(value: str) -> bool:
    """Whether a value is an existing path (SSH_AUTH_SOCK): a secret may begin with a `/`, too."""
    try:
        return value.startswith(("/", "~", ".")) and os.path.exists(os.path.expanduser(value))
    except ValueError:  # a NUL character
        return False


def looks_random(value: str) -> bool:
    """Whether a value can only be a key or a password, so that it may be removed from answers and replies.

    Placeholders for a key (`none`, `not-needed`, `production`) occur in ordinary text. A value counts as random when it
    has the form of some provider's keys, or no white space and either 12 characters or more with a digit among them, or
    20 letters or more in a row with an entropy of at least 3.5 bits per letter.
    """
    value = value.strip()
    if looks_secret(value):
        return True
    if re.search(r"\s", value):
        return False
    if len(value) >= 12 and re.search(r"\d", value):
        return True
    return any(len(part) >= 20 and _bits_per_letter(part) >= 3.5 for part in re.split(r"[^A-Za-z]", value))


def _bits_per_letter(text: str) -> float:
    return -sum(n / len(text) * math.log2(n / len(text)) for n in Counter(text).values())


def looks_secret(text: str, known: Mapping[str, str] | None = None) -> str | None:
    """What a text contains that must not be written (`an API key (sk-...)`), None when nothing.

    `known` are secret values with the names of their variables, as `secrets_of_environment` gives them.
    """
    for value, name in (known or {}).items():
        if value in text:
            return f"the value of the environment variable {name}"
    return next((description for description, pattern in _PATTERNS if pattern.search(text)), None)


def secret_at(key: str, value: Any, known: Mapping[str, str] | None = None) -> str | None:
    """As `looks_secret` for a value under a dotted key; the key's own name counts too."""
    if not isinstance(value, str) or not value or value.startswith("${"):
        return None
    if _VARIABLE_NAME_KEY.search(key):
        if description := looks_secret(value, known):
            return description
        return None if _ENV_NAME.match(value) else "something that is no name of an environment variable"
    if _SECRET_NAME.search(key):
        return "a value under a name that says it is secret"
    return looks_secret(value, known)


def pairs(value: str) -> list[tuple[str, str]]:
    """Keys and values of a flat mapping on the command line, `{a: b, c: d}`; empty for any other form."""
    inside = re.fullmatch(r"\{([^{}\[\]]*)\}", value)
    parts = [pair.partition(":") for pair in inside[1].split(",")] if inside and inside[1].strip() else []
    if not all(colon for _, colon, _ in parts):
        return []
    return [(name.strip().strip("'\""), item.strip().strip("'\"")) for name, _, item in parts]


def redact(text: str, known: Mapping[str, str] | None = None) -> str:
    """The text with every known secret, and every part that looks like a key, replaced."""
    for value, name in (known or {}).items():
        text = text.replace(value, f"<value of {name}>")
    for _, pattern in _PATTERNS:
        text = pattern.sub("<not shown>", text)
    return text


def secrets_in(plain: Any, origins: ConfigOrigins) -> list[Problem]:
    """Every key or value that looks like a secret, wherever it came from (an interpolation may have brought it in)."""
    known_secrets = secrets_of_environment()
    return [
        Problem(origins.location(key), key or "a key", f"{description} (not shown)", "no secret in a configuration", FIX)
        for key, description in _secrets(plain, "", known_secrets)
    ]


def _secrets(value: Any, key: str, known_secrets: Any) -> Iterator[tuple[str, str]]:
    """Dotted keys, each with what is secret there, in the order of the configuration."""
    if isinstance(value, Mapping):
        for name, item in value.items():
            if description := looks_secret(str(name), known_secrets):
                yield key, f"{description} as a key"
            else:
                yield from _secrets(item, f"{key}.{name}" if key else str(name), known_secrets)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _secrets(item, f"{key}.{index}", known_secrets)
    elif description := secret_at(key, value, known_secrets):
        yield key, description


HIDDEN = "<hidden: it looks like a secret>"
_MASK = "***"
_SHORTEST = 8  # a shorter "key" (EMPTY, none, test) is no secret, and redacting it would garble replies
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,79}\Z")


def looks_like_key(text: str) -> bool:
    """Whether a text looks like an API key, a token, or a URL with a password, rather than a name or a path."""
    text = text.strip()
    if looks_secret(text):
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

    For answers and replies pass only secrets that `ragpipe.core.secrets.looks_random`.
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

"""Which values of an endpoint's headers are secrets, in messages and in answers that repeat them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from ragpipe.core.secret_detection import looks_random, looks_secret

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

"""Rules for the form of an answer: JSON, length, language."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from functools import lru_cache
from graphlib import CycleError, TopologicalSorter
from typing import Any

from ragpipe.core import strict_json
from ragpipe.core.patterns import Search, compile_timed, read_patterns
from ragpipe.core.text import sentences

LANGUAGES = "languages.v1"
LEAST_WORDS = 12  # in fewer words, the function words that an answer happens to contain say little
LEAST_SHARE = 0.15  # of function words; running text of these languages holds 0.3 and more, a list of names far less
LEAD = 1.25  # times the share of the next language: related languages have words in common
_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)*")
_ONE_BY_ONE = re.compile(
    r"[\u3005-\u3007\u3041-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff]"
)
_FENCED = re.compile(r"\A\s*```(?:json)?[ \t]*\n(.*?)\n?```\s*\Z", re.S | re.I)


def sizes(text: str) -> dict[str, int]:
    """Words, characters, sentences.

    Words are the runs of signs between white space that hold a letter or digit. Chinese and Japanese write without spaces:
    there each Han character and each kana is a word, as in the word counts of office programs; Korean has spaces.
    """
    one_by_one = _ONE_BY_ONE.findall(text)
    words = sum(any(c.isalnum() for c in word) for word in _ONE_BY_ONE.sub(" ", text).split())
    return {
        "words": words + sum(c.isalnum() for c in one_by_one),
        "characters": len(text.strip()),
        "sentences": len(sentences(text)),
    }


@lru_cache(maxsize=4)
def function_words() -> dict[str, frozenset[str]]:
    """The function words by language code."""
    by_code = read_patterns(LANGUAGES)["function_words"]
    return {code: frozenset(words.split()) for code, words in by_code.items()}


def language_of(text: str) -> str | None:
    """The code of the language, `other` where most letters are of another script, None where the rules cannot say."""
    letters = [c for c in text if c.isalpha()]
    if len(letters) >= LEAST_WORDS and sum(ord(c) > 0x24F for c in letters) > len(letters) / 2:
        return "other"
    words = [word.casefold().replace("’", "'") for word in _WORD.findall(text)]
    if len(words) < LEAST_WORDS:
        return None
    counts = Counter({code: sum(word in known for word in words) for code, known in function_words().items()})
    (first, most), (_, next_) = counts.most_common(2)
    return first if most >= LEAST_SHARE * len(words) and most >= LEAD * next_ else None


def schema_fault(answer: str, schema: dict[str, Any], search: Search) -> str | None:
    """What keeps the answer from being JSON of this schema; None when it is.

    The answer, or the one fenced block that it consists of, is read strictly (no NaN, no repeated keys).
    """
    fenced = _FENCED.match(answer)
    try:
        value = strict_json.strict_loads(fenced[1] if fenced else answer)
    except strict_json.InvalidJson as error:
        return f"not JSON: {error}"
    try:
        fault = next(iter(sorted(validator(schema, search).iter_errors(value), key=lambda e: e.json_path)), None)
    except RecursionError:
        return "nested too deep to be checked"
    return None if fault is None else f"{fault.json_path}: {fault.message}"


FORMATS = ("date", "date-time", "email", "ipv4", "ipv6", "regex", "uuid")
"""The formats that are checked. All others are refused: which ones the package can check depends on what else is installed."""
_DATE_TIME = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(?:\.\d+)?(?:[Zz]|[+-]\d\d:\d\d)", re.ASCII)
_SAME_VALUE = {  # keywords whose schemas read the same value as the schema that holds them
    "single": ("not", "if", "then", "else"),
    "list": ("allOf", "anyOf", "oneOf"),
    "by_name": ("dependentSchemas",),
}
_INNER_VALUES = {
    "single": ("items", "contains", "additionalProperties", "unevaluatedItems", "unevaluatedProperties", "propertyNames"),
    "list": ("prefixItems",),
    "by_name": ("properties", "patternProperties", "$defs", "definitions"),
}


def check_schema(schema: dict[str, Any]) -> None:
    """Raises ValueError for what is no JSON schema (draft 2020-12); for a `$ref` that points elsewhere, to nothing, or
    round in a circle that reads no part of the value; for a pattern that cannot be read; and for a format outside
    `FORMATS`."""
    from jsonschema import FormatChecker  # type: ignore[import-untyped, unused-ignore]
    from jsonschema.exceptions import SchemaError  # type: ignore[import-untyped, unused-ignore]

    try:  # its patterns are compiled below, by the library that runs them
        validator(schema, Search()).check_schema(schema, format_checker=FormatChecker(formats=()))
    except SchemaError as error:
        raise ValueError(f"a JSON schema (draft 2020-12): {error.json_path}: {error.message}") from None
    except RecursionError:
        raise ValueError("a JSON schema of some 30 levels at most; this one is nested too deep to be checked") from None
    _check_parts(schema)


def validator(schema: dict[str, Any], search: Search) -> Any:
    """A validator whose patterns have a time limit and respect case, as the standard demands. It fetches nothing."""
    from jsonschema import Draft202012Validator, FormatChecker, ValidationError  # type: ignore[import-untyped, unused-ignore]
    from jsonschema.validators import extend  # type: ignore[import-untyped, unused-ignore]
    from referencing import Registry

    def check_pattern(_: Any, pattern: str, value: Any, __: Any) -> Any:
        name = f"json_schema pattern {pattern}"
        if isinstance(value, str) and not search(pattern, value, name, match_case=True):
            yield ValidationError(f"{value!r} does not match {pattern!r}")

    timed_validator = extend(Draft202012Validator, {"pattern": check_pattern})
    formats = FormatChecker(formats=[name for name in FORMATS if name != "date-time"])
    formats.checks("date-time", raises=ValueError)(_is_date_time)
    return timed_validator(schema, registry=Registry(), format_checker=formats)


def _is_date_time(value: object) -> bool:
    """RFC 3339, which asks for an offset. A leap second is refused."""
    if not isinstance(value, str):
        return True
    return bool(_DATE_TIME.fullmatch(value)) and bool(datetime.fromisoformat(value.upper()))


def _check_parts(schema: dict[str, Any]) -> None:
    """Looks at every schema that can be reached, each once. Raises ValueError as `check_schema` does."""
    from referencing import Registry
    from referencing.jsonschema import DRAFT202012

    same_value: dict[int, list[int]] = {}  # the schemas that read the same value as each one, by identity
    waiting = [(schema, Registry().resolver_with_root(DRAFT202012.create_resource(schema)))]
    while waiting:
        part, resolver = waiting.pop()
        if not isinstance(part, dict) or id(part) in same_value:
            continue
        if part is not schema and "$id" in part:
            resolver = resolver.in_subresource(DRAFT202012.create_resource(part))
        _check_keywords(part)
        same = [(schema_part, resolver) for schema_part in _parts(part, _SAME_VALUE)]
        same += [_target(part[key], resolver) for key in ("$ref", "$dynamicRef") if key in part]
        same_value[id(part)] = [id(schema_part) for schema_part, _ in same if isinstance(schema_part, dict)]
        waiting += [*same, *((schema_part, resolver) for schema_part in _parts(part, _INNER_VALUES))]
    try:
        TopologicalSorter(same_value).prepare()
    except CycleError:
        raise ValueError("a JSON schema whose $ref leads on; one leads back to itself and reads no part of the value") from None


def _target(ref: str, resolver: Any) -> tuple[Any, Any]:
    """What a reference points to, and the resolver of that place."""
    from referencing.exceptions import Unresolvable

    if not ref.startswith("#"):
        raise ValueError(f"a JSON schema that refers to itself alone; $ref {ref!r} points elsewhere")
    try:
        target = resolver.lookup(ref)
    except Unresolvable:
        raise ValueError(f"a JSON schema that holds what it refers to; $ref {ref!r} points to nothing") from None
    if not isinstance(target.contents, dict | bool):
        raise ValueError(f"a JSON schema; $ref {ref!r} points to {type(target.contents).__name__}, which is none")
    return target.contents, target.resolver


def _check_keywords(schema: dict[str, Any]) -> None:
    if isinstance(schema.get("pattern"), str):
        compile_timed(schema["pattern"], match_case=True)
    for pattern in schema.get("patternProperties", {}):
        try:
            re.compile(pattern)
        except re.error as error:
            raise ValueError(f"a regular expression; {pattern!r}: {error}") from None
    if schema.get("format", FORMATS[0]) not in FORMATS:
        known = ", ".join(FORMATS)
        raise ValueError(f"a format out of {known}; {schema['format']!r} is not checked: take it out, or use a pattern")


def _parts(schema: dict[str, Any], keys: dict[str, tuple[str, ...]]) -> Iterator[Any]:
    yield from (schema[key] for key in keys["single"] if key in schema)
    yield from (part for key in keys["list"] for part in schema.get(key, ()))
    yield from (part for key in keys["by_name"] for part in schema.get(key, {}).values())

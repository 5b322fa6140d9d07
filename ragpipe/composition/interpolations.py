"""Interpolations of a configuration: which resolvers it may use, how many may lead to each other; no secret variables."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from ragpipe.core.errors import ConfigError, Problem
from ragpipe.core.secret_detection import FIX, is_secret_name, secrets_in
from ragpipe.core.validation import ConfigOrigins, did_you_mean

TITLE = "the configuration is wrong; nothing was started"
MAX_CHAINED = 30  # `a: ${b}${b}`, `b: ${c}${c}`, ... doubles at each step
_KEY = r"(?![.\[]*hydra\b)[^\\${}()\s'\":,]+"
_ARGUMENTS = r"[^{}$]*"
_ALLOWED = re.compile(
    rf"""\$\{{\s*(?:
    (?:oc\.decode\s*:\s*\$\{{\s*)?oc\.env\s*:\s*['"]?(?P<variable>\w+)['"]?\s*(?:,{_ARGUMENTS})?(?:\}}\s*)?
    | oc\.(?:select|dict\.values)\s*:\s*['"]?(?P<selected>{_KEY})['"]?\s*(?:,{_ARGUMENTS})?
    | (?:hydra|now|oc\.dict\.keys|python_version)\s*:{_ARGUMENTS}
    | (?P<key>{_KEY})\s*)\}}""",
    re.X,
)
_FORMS = (
    "${KEY}, ${oc.env:NAME}, ${oc.decode:${oc.env:NAME}}, or a plain argument to oc.select, oc.dict.keys, oc.dict.values, hydra, now, "
    "python_version"
)
_EXAMPLES = {
    "judge.model": "openai/gpt-4o-mini-2024-07-18",
    "system.url": "http://127.0.0.1:8000/ask",
    "system.callable": "myrag:answer",
}


def interpolation_fault(text: str) -> tuple[str, str, str] | None:
    """What a text with `${...}` may not hold: what, expected, how to fix it. None when it may stand."""
    if "${" not in text:
        return None
    for match in _ALLOWED.finditer(text):
        if (name := match["variable"]) and is_secret_name(name):
            what = f"the environment variable {name}, whose name says that its value is secret (not shown)"
            return what, "no secret in a configuration", FIX
    if "${" in (rest := _ALLOWED.sub("", text)):
        return f"the interpolation {rest[rest.index('${') :][:60]}", _FORMS, ""
    return None


def check_interpolations(config: DictConfig, origins: ConfigOrigins, *, secrets: bool = True) -> dict[str, str]:
    """Every text of the configuration by its dotted key, nothing in it resolved, without Hydra's section. Raises ConfigError for
    what no interpolation may be, of secret variables only where `secrets`, and for more than may lead to each other."""
    raw: Any = OmegaConf.to_container(config, resolve=False)
    raw.pop("hydra", None)
    texts = dict(_texts(raw, ""))
    found = ((key, interpolation_fault(text)) for key, text in texts.items())
    faults = {key: fault for key, fault in found if fault and (secrets or fault[2] != FIX)}
    if not faults and (chained := _chained(texts))[MAX_CHAINED:]:
        what = f"{len(chained)} interpolations that lead to other interpolations"
        faults = {chained[0]: (what, f"at most {MAX_CHAINED}", "write the values")}
    if faults:
        raise ConfigError(TITLE, [Problem(origins.location(key), key, *fault) for key, fault in faults.items()])
    return texts


def resolved(config: DictConfig, origins: ConfigOrigins) -> dict[str, Any]:
    """The configuration as plain data, every interpolation resolved, without Hydra's section.

    Raises ConfigError as `check_interpolations`, and for every `???`, every secret, and interpolations that cannot be resolved.
    """
    faults: dict[str, tuple[str, str, str]] = {}
    plain: dict[str, Any] = {}
    for key, text in check_interpolations(config, origins).items():
        if text == "???":
            faults[key] = "??? (to be given)", "a value", _to_be_given(key, origins)
        elif "\0" in text:
            faults[key] = "a text with a NUL character", "a text without one", ""
    try:
        values = {str(name): OmegaConf.select(config, str(name)) for name in config if name != "hydra"}
        plain = {
            name: OmegaConf.to_container(v, resolve=True) if OmegaConf.is_config(v) else v for name, v in values.items()
        }
    except (OmegaConfBaseException, RecursionError) as error:
        key = re.sub(r"\[(\d+)\]", r".\1", str(getattr(error, "full_key", None) or "the configuration"))
        faults[key] = str(error).split("\n")[0], "an interpolation that can be resolved", "define what it names"
    problems = [Problem(origins.location(key), key, *fault) for key, fault in faults.items()]
    if problems := problems + secrets_in(plain, origins):
        raise ConfigError(TITLE, problems)
    return plain


def _to_be_given(key: str, origins: ConfigOrigins) -> str:
    """How to give a value; a typed key of nearly the same name beside it is named."""
    above, _, name = key.rpartition(".")
    for typed in getattr(origins, "chosen", ()):
        if typed != key and typed.rpartition(".")[0] == above and did_you_mean(typed.rpartition(".")[2], [name]):
            return f"the command line has {typed}: did you mean {key}?"
    example = f" (for example {key}={_EXAMPLES[key]})" if key in _EXAMPLES else ""
    return f"pass {key}=...{example} or set it in your experiment"


def _texts(node: Any, key: str) -> Iterator[tuple[str, str]]:
    if isinstance(node, str):
        yield key, node
    for name, item in node.items() if isinstance(node, dict) else enumerate(node if isinstance(node, list) else ()):
        yield from _texts(item, f"{key}.{name}" if key else str(name))


def _chained(texts: Mapping[str, str]) -> list[str]:
    """The key of each interpolation that may lead to a value with interpolations of its own: either name is in the other."""
    found = ((key, match) for key, text in texts.items() if "${" in text for match in _ALLOWED.finditer(text))
    leads = [
        (key, re.sub(r"[.\[\]]+", ".", name).strip(".")) for key, m in found if (name := m["key"] or m["selected"])
    ]
    return [key for key, name in leads if any(name in other or other in name for other, _ in leads)]

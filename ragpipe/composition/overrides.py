"""Overrides, the words of a command line: parsed and checked one by one, and what a misspelt one was meant as."""

from __future__ import annotations

import re
from difflib import get_close_matches
from pathlib import Path

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import OverrideParseException

from ragpipe.core.errors import Problem
from ragpipe.core.registry import option_folders
from ragpipe.core.secret_detection import FIX, pairs, secret_at, secrets_of_environment

COMMAND_LINE = "command line"
OVERLAYS = ("experiment", "mode")
_CLOSE = 0.75  # how alike two words must be, from 0 to 1
_FORMS = {"experiment": "+{0}={1}", "mode": "+{0}={1}", "metrics": "{0}=[{1}]"}
_SWITCHES = {
    "help": "--help", "version": "--version", "multirun": "-m", "config-dir": "--config-dir DIR", "resolve": "--resolve",
    "package": "--package", "dry-run": "task=plan", "config-name": "+experiment=NAME", "output": "output_dir=DIR",
    "verbose": "log_level=debug", "resume": "the same command again: it goes on where it stopped",
}  # fmt: skip
"""Switches, those that other programs have too, and what does the same here."""


def parsed_word(parser: OverridesParser, typed: str) -> Override | Problem:
    """An override, or why it cannot be parsed. Hydra cannot parse `path=größe.csv` or `x=a=b`: quotes must be meant there."""
    key, equals, value = typed.partition("=")
    is_plain = equals and value and not set(value) & set("'\"[]{}(),\\$")
    for word in (typed, f'{key}="{value}"') if is_plain else (typed,):
        try:
            return parser.parse_overrides([word])[0]
        except RecursionError:
            return Problem(COMMAND_LINE, typed[:60], "too many brackets", "key=value")
        except OverrideParseException as error:
            what = str(error.message).split("\n")[0]
    if not equals and not typed.startswith("~"):
        expected = "key=value, or a file that exists"
        return Problem(COMMAND_LINE, typed[:80], "a word without =", expected, near_word(typed))
    fix = "put a value with spaces, commas, brackets, = or : in quotes twice: 'key=\"a, b\"'"
    return Problem(COMMAND_LINE, typed[:80], what, "key=value in Hydra's grammar", fix)


def unsafe(word: str) -> list[Problem]:
    """What a word of the command line may not hold: it must not even reach Hydra, which would write it to disk."""
    key, _, value = word.partition("=")
    key, value = key.strip().lstrip("+~"), value.strip().strip("'\"")
    secrets = secrets_of_environment()
    items = [] if value == "{}" else [(f"{key}.{name}", item) for name, item in pairs(value)] or [(key, value)]
    if secret := next(filter(None, (secret_at(*item, secrets) for item in [*items, ("", word)])), None):
        name = key if re.fullmatch(r"[A-Za-z_][\w.@/\-]{0,60}", key) and not secret_at("", key) else "an argument"
        return [Problem(COMMAND_LINE, name, f"{secret} (not shown)", "no secret on the command line", FIX)]
    if "_target_" in word:
        return [Problem(COMMAND_LINE, key, "`_target_`", "nothing that is called", "name a class with `class`")]
    return []


def near_word(word: str) -> str:
    """What a word without `=`, or an unknown option (`--dry-run`), may have been meant as; else where they are listed."""
    from ragpipe.config.settings import RUN_KEYS

    missing = Path(word)
    if missing.suffix or "/" in word:
        alike = [path.stem for path in missing.parent.glob("*") if path.suffix == missing.suffix]
        near = get_close_matches(missing.stem, alike, 1)
        fix = "there is no such file or folder here; a file is evaluated by `python -m ragpipe FILE`"
        return f"did you mean {missing.with_stem(near[0])}?" if near else fix
    forms = {key: f"{key}=..." for key in RUN_KEYS} | _SWITCHES
    for path in (path for folder in option_folders() for path in sorted(folder.glob("*/*.yaml"))):
        forms[path.stem] = _FORMS.get(path.parent.name, "{0}={1}").format(path.parent.name, path.stem)
    near = get_close_matches(word.lstrip("-").partition("=")[0], forms, 1, _CLOSE)
    return f"did you mean {forms[near[0]]}?" if near else "--help lists the words and options"


def option_meant(group: str, name: str) -> str:
    """What to write in place of an option that is not found: one in a folder of its own name here, or the value of a key: a model
    as `judge`, a format as `report`. Empty where nothing is known."""
    if (Path(name) / group / f"{name}.yaml").is_file():
        return f"it is in the folder {name}/: add --config-dir {name}"
    if group == "judge":
        from ragpipe.judging.capabilities import with_provider

        return f"for a language model: judge=llm judge.model={with_provider(name)}"
    return "'report.formats=[terminal,html]' chooses formats" if group == "report" else ""

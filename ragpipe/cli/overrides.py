"""Overrides, the arguments of a command line: parsed and checked one by one, and what a misspelt one was meant as.

What a configuration may say about Hydra itself: how a sweep is started, and nothing else.

All else could run code (`job_logging`, `callbacks`), change the process (`job.chdir`, `job.env_set`) or write somewhere
(`run.dir`). It is refused where it is set: in a file when Hydra opens it, in an argument before Hydra gets it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import OverrideParseException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from ragpipe.core.errors import ConfigError, Problem
from ragpipe.core.registry import option_folders
from ragpipe.core.secrets import FIX, is_secret_name, pairs, secret_at, secrets_in, secrets_of_environment
from ragpipe.core.settings import ConfigOrigins, did_you_mean
from ragpipe.core.yaml_files import lines_in

COMMAND_LINE = "command line"
OVERLAYS = ("experiment", "mode")
_CLOSE = 0.75  # how alike two arguments must be, from 0 to 1
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
    for argument in (typed, f'{key}="{value}"') if is_plain else (typed,):
        try:
            return parser.parse_overrides([argument])[0]
        except RecursionError:
            return Problem(COMMAND_LINE, typed[:60], "too many brackets", "key=value")
        except OverrideParseException as error:
            what = str(error.message).split("\n")[0]
    if not equals and not typed.startswith("~"):
        expected = "key=value, or a file that exists"
        return Problem(COMMAND_LINE, typed[:80], "an argument without =", expected, near_word(typed))
    fix = "put a value with spaces, commas, brackets, = or : in quotes twice: 'key=\"a, b\"'"
    if value[:1] in ("[", "{") and value[-1:] not in ("]", "}"):
        fix = "a blank ends the argument: put all of it in quotes, as in 'key=[a, b]'"
    return Problem(COMMAND_LINE, typed[:80], what, "key=value in Hydra's grammar", fix)


def unsafe(argument: str) -> list[Problem]:
    """What an argument of the command line may not hold: it must not even reach Hydra, which would write it to disk."""
    key, _, value = argument.partition("=")
    key, value = key.strip().lstrip("+~"), value.strip().strip("'\"")
    secrets = secrets_of_environment()
    items = [] if value == "{}" else [(f"{key}.{name}", item) for name, item in pairs(value)] or [(key, value)]
    if secret := next(filter(None, (secret_at(*item, secrets) for item in [*items, ("", argument)])), None):
        name = key if re.fullmatch(r"[A-Za-z_][\w.@/\-]{0,60}", key) and not secret_at("", key) else "an argument"
        return [Problem(COMMAND_LINE, name, f"{secret} (not shown)", "no secret on the command line", FIX)]
    if "_target_" in argument:
        return [Problem(COMMAND_LINE, key, "`_target_`", "nothing that is called", "name a class with `class`")]
    return []


def near_word(argument: str) -> str:
    """What an argument without `=`, or an unknown option (`--dry-run`), may have been meant as; else where they are listed."""
    from ragpipe.runs.settings import RUN_KEYS

    missing = Path(argument)
    if missing.suffix or "/" in argument:
        alike = [path.stem for path in missing.parent.glob("*") if path.suffix == missing.suffix]
        near = get_close_matches(missing.stem, alike, 1)
        fix = "there is no such file or folder here; a file is evaluated by `python -m ragpipe FILE`"
        return f"did you mean {missing.with_stem(near[0])}?" if near else fix
    forms = {key: f"{key}=..." for key in RUN_KEYS} | _SWITCHES
    for path in (path for folder in option_folders() for path in sorted(folder.glob("*/*.yaml"))):
        forms[path.stem] = _FORMS.get(path.parent.name, "{0}={1}").format(path.parent.name, path.stem)
    near = get_close_matches(argument.lstrip("-").partition("=")[0], forms, 1, _CLOSE)
    return f"did you mean {forms[near[0]]}?" if near else "--help lists the arguments and options"


def option_meant(group: str, name: str) -> str:
    """What to write in place of an option that is not found: one in a folder of its own name here, or the value of a key: a model
    as `judge`, a format as `report`. Empty where nothing is known."""
    if (Path(name) / group / f"{name}.yaml").is_file():
        return f"it is in the folder {name}/: add --config-dir {name}"
    if group == "judge":
        from ragpipe.judge.capabilities import with_provider

        return f"for a language model: judge=llm judge.model={with_provider(name)}"
    return "'report.formats=[terminal,html]' chooses formats" if group == "report" else ""


_JOBLIB = "n_jobs|verbose|timeout|batch_size|max_nbytes"
_SLURM = (
    "timeout_min|cpus_per_task|gpus_per_node|tasks_per_node|mem_gb|nodes|name|partition|qos|account|array_parallelism|max_num_timeout|"
    "signal_delay_s|constraint|exclude|gres|cpus_per_gpu|gpus_per_task|mem_per_gpu|mem_per_cpu|stderr_to_stdout"
)
_SWEEPER = "max_batch_size|params|n_trials|n_jobs|direction|study_name|max_failure_rate"
_PARAM = r"|sweeper\.params\.(?!.*\bhydra\b).+"
_IN_FILES = re.compile(rf"hydra\.(launcher\.({_JOBLIB}|{_SLURM})|sweeper\.({_SWEEPER}){_PARAM})")
"""The keys that a file may set: they start nothing and name no file."""
_AS_WORDS = re.compile(rf"hydra\.((launcher|sweeper)\.[A-Za-z]\w*|sweep\.dir{_PARAM})")
_GROUPS = ("hydra/launcher", "hydra/sweeper")
_EXPECTED = "nothing of hydra but hydra/launcher, hydra/sweeper and their parameters; hydra.sweep.dir as an argument"
_FIX = "ragpipe's own are -m, output_dir, log_level and --config-dir"


def is_hydra(key: str) -> bool:
    """Whether a key, a group or a package is Hydra's own, in any of the forms that Hydra takes: `[hydra].job`, `_global_.hydra`."""
    return next((part for part in re.split(r"[./@:\[\]]+", key) if part not in ("", "_global_")), "") == "hydra"


def word_faults(override: Override, where: str) -> list[Problem]:
    """What an argument of the command line, or of a sweeper, sets in Hydra's section and may not."""
    key, package = override.key_or_group, override.package or ""
    if not (is_hydra(key) or is_hydra(package)) or (key in _GROUPS and not package):
        return []
    value = "" if override.is_sweep_override() else override.value()
    fault = _key_fault(key, value, _AS_WORDS)
    return [Problem(where, key, *fault)] if fault else []


def file_faults(content: Any, package: str, text: str, where: str) -> list[Problem]:
    """What a file sets in Hydra's section, or chooses of its groups, and may not. Hydra takes more forms of a package than one: a
    file may only set keys below `hydra:`.

    `content` is the file as plain data, `package` where its header places it, `text` and `where` give the lines.
    """
    if re.search(r"\bhydra\b", package):
        line = text.count("\n", 0, text.find("@package")) + 1
        return [Problem(f"{where}:{line}", "@package", package, "a package that is not Hydra's own", _FIX)]
    if not isinstance(content, dict):
        return []
    listed, lines = content.get("defaults"), lines_in(text)
    items = [(f"defaults.{n}", _item_fault(item)) for n, item in enumerate(listed if isinstance(listed, list) else ())]
    keys = [(key, _key_fault(key, value, _IN_FILES)) for key, value in _leaves(content.get("hydra", {}), "hydra")]
    return [Problem(f"{where}:{lines.get(key, 1)}", key, *fault) for key, fault in (*items, *keys) if fault]


def _item_fault(item: Any) -> tuple[str, str, str] | None:
    """What is wrong with an item of a defaults list."""
    group, value = next(iter(item.items())) if isinstance(item, dict) and len(item) == 1 else (item, "")
    if not all(isinstance(name, str) for name in (group, *(value if isinstance(value, list) else [value or ""]))):
        return f"{item!r}"[:80], "NAME, GROUP: NAME or GROUP: [NAME, ...]", ""
    if re.search(r"\bhydra\b", str(item)) and (group.split() or [""])[-1].lstrip("/") not in _GROUPS:
        return repr(group), "options of ragpipe's groups, of hydra/launcher or of hydra/sweeper", "remove the line"
    return interpolation_fault(str(item))


def _key_fault(key: str, value: Any, allowed: re.Pattern[str]) -> tuple[str, str, str] | None:
    """What is wrong with a key of Hydra's section: found, expected, fix. None when it may be set."""
    if not allowed.fullmatch(key):
        as_word = allowed is _IN_FILES and _AS_WORDS.fullmatch(key)
        return "a key of Hydra's own", _EXPECTED, f"write {key}=... as an argument" if as_word else _FIX
    items = value if isinstance(value, list) else [value]
    if any(isinstance(item, Mapping | list) or (allowed is _IN_FILES and "${" in str(item)) for item in items):
        return "a mapping or an interpolation", "a number, true or false, a text, or a list of them", ""
    return None


def _leaves(value: Any, key: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for name, item in value.items():
            yield from _leaves(item, f"{key}.{name}")
    else:
        yield key, value


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
_INTERPOLATION_FORMS = (
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
        return f"the interpolation {rest[rest.index('${') :][:60]}", _INTERPOLATION_FORMS, ""
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
        plain = {name: OmegaConf.to_container(v, resolve=True) if OmegaConf.is_config(v) else v for name, v in values.items()}
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
    leads = [(key, re.sub(r"[.\[\]]+", ".", name).strip(".")) for key, m in found if (name := m["key"] or m["selected"])]
    return [key for key, name in leads if any(name in other or other in name for other, _ in leads)]

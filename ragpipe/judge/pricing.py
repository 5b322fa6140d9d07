"""Prices of models: the user's own, else litellm's bundled price table, which is read without importing litellm.

Tokens are stored, and money is computed from them when it is needed. An unknown price is None with a reason, never 0.
"""

from __future__ import annotations

import json
import os
import re
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ragpipe.core.usage import Price, Tier
from ragpipe.judge.settings import JudgeSettings, PriceSettings

_FILE = "model_prices_and_context_window_backup.json"
_MILLION = 1e6
_ENVIRONMENT_LOCK = threading.Lock()
_COLUMNS = {
    "input": "input_cost_per_token",
    "output": "output_cost_per_token",
    "cached_input": "cache_read_input_token_cost",
    "reasoning": "output_cost_per_reasoning_token",
    "written_input": "cache_creation_input_token_cost",
}
_ABOVE = re.compile(rf"({'|'.join(_COLUMNS.values())})_above_(\d+)k_tokens")


def rates_for(settings: JudgeSettings) -> Price:
    """The prices of a judge or an embedder: its own, else those of the table."""
    return priced(settings, settings.prices, settings.section)


def priced(settings: JudgeSettings, own: PriceSettings | None, section: str, *, suffix: str = "") -> Price:
    """The prices of a judge or an embedder: the user's `own`, those of the `section`, else of the table's columns with this
    ending (`suffix`). A private server has no public price."""
    if own is not None:
        return own.of(settings.model, f"{section}.prices")
    if settings.api_base is not None:
        source = f"{settings.section}.api_base"
        reason = f"{source} names a server of your own, which has no public price: set {section}.prices"
        return Price(settings.model, source, reason=reason)
    return table_rates(settings.model, section=section, suffix=suffix)


def table_rates(model: str, *, section: str = "judge", suffix: str = "") -> Price:
    """The prices of the bundled table for `provider/model`, of the columns with this ending."""
    source, rows = _bundled()
    row = _row(rows, model)
    if row is None:
        return Price(model, source, reason=f"the price table does not know {model}: set {section}.prices")
    tiers = _tiers({name.removesuffix(suffix): value for name, value in row.items() if name.endswith(suffix)})
    if not tiers or not any(tier.input + tier.output for tier in tiers):
        return Price(model, source, reason=f"the price table has no price for {model}: set {section}.prices")
    return Price(model, source, tiers)


def _tiers(row: Mapping[str, Any]) -> tuple[Tier, ...]:
    """The row's prices, and those for long prompts. A price that a tier does not name is that of the tier below."""
    tiers = []
    known: dict[str, float] = {}
    for above, prices in sorted(_prices_by_prompt_length(row).items()):
        known |= prices
        if "input" in known and "output" in known:
            each = {name: known.get(name, known[default]) * _MILLION for name, default in _DEFAULTS.items()}
            per = {name: float(f"{price:.12g}") for name, price in each.items()}
            tiers.append(Tier(above, **per))
    return tuple(tiers)


_DEFAULTS = {"input": "input", "output": "output", "cached_input": "input", "reasoning": "output", "written_input": "input"}
"""The price that applies where one is not named."""


def _prices_by_prompt_length(row: Mapping[str, Any]) -> dict[int, dict[str, float]]:
    """The prices per token that a row names, by the prompt tokens above which they apply."""
    prices: dict[int, dict[str, float]] = {0: _named_prices(row)}
    for match in filter(None, map(_ABOVE.fullmatch, row)):
        column = next(name for name, key in _COLUMNS.items() if key == match[1])
        if _is_price(row[match[0]]):
            prices.setdefault(int(match[2]) * 1000, {})[column] = float(row[match[0]])
    for tier in row.get("tiered_pricing") or ():
        if isinstance(tier, dict) and isinstance(tier.get("range"), list) and tier["range"]:
            prices[int(tier["range"][0])] = _named_prices(tier)
    return prices


def _named_prices(row: Mapping[str, Any]) -> dict[str, float]:
    return {name: float(row[key]) for name, key in _COLUMNS.items() if _is_price(row.get(key))}


def _is_price(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= 0


def _row(rows: Mapping[str, Any], model: str) -> Mapping[str, Any] | None:
    """The row of the full name, or of the bare name where it belongs to the same provider."""
    provider, _, name = model.partition("/")
    row = rows.get(model)
    if row is None:
        bare = rows.get(name)
        if isinstance(bare, dict) and str(bare.get("litellm_provider", "")).startswith(provider):
            row = bare
    return row if isinstance(row, dict) else None


def _litellm_file(name: str) -> Path | None:
    """A file in litellm's folder; None where it is not there. The package is not imported."""
    spec = find_spec("litellm")
    folders = [Path(p) for p in (spec.submodule_search_locations or ())] if spec else []
    return next((p / name for p in folders if (p / name).is_file()), None)


@contextmanager
def in_environment(names: Mapping[str, str]) -> Iterator[None]:
    """Set these environment variables, and restore the previous values afterwards."""
    with _ENVIRONMENT_LOCK:
        before = {name: os.environ.get(name) for name in names}
        os.environ.update(names)
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value


@lru_cache(maxsize=1)
def _bundled() -> tuple[str, Mapping[str, Any]]:
    """The name and the rows of the price table. It does not say from which day its prices are."""
    path = _litellm_file(_FILE)
    if path is None:
        return "no price table (litellm is not installed)", {}
    try:
        number = version("litellm")
    except PackageNotFoundError:
        number = "of unknown version"
    return f"litellm {number}", json.loads(path.read_text(encoding="utf-8"))


_TOKENIZERS = "litellm_core_utils/tokenizers"
# the files are named by the sha1 of the URL that they came from, as in tiktoken's cache
_FILES = {"cl100k_base": "9b5ad71b2ce5302211f9c61530b329a4922fc6a4", "o200k_base": "fb374d419588a4632f3f557e76b4b70aebbca790"}
_O200K = ("gpt-4o", "gpt-4.1", "gpt-4.5", "gpt-5", "o1", "o3", "o4", "chatgpt-4o", "gpt-oss")
PROMPT_CUT = "prompt_cut"
"""Flag of a reply whose prompt the server read only in part."""
CHARACTERS_PER_TOKEN = 4
_MOST_CHARACTERS = 6.0  # of a token on average: English prose has at most 5, any other script fewer
_SHORT = 1000  # tokens: no server's context is smaller
_RUN = re.compile(r"(.)\1{3,}", re.DOTALL)


def count_tokens(text: str, model: str = "") -> int:
    """Tokens of a text. Exact for OpenAI's models, an estimate for others; see `how_counted`."""
    encoding = _encoding(_name(model))
    if encoding is None:
        return -(-len(text) // CHARACTERS_PER_TOKEN)
    return len(encoding.encode_ordinary(text))


def is_cut(messages: Iterable[Mapping[str, str]], tokens_in: int | None) -> bool:
    """Whether a server counted so few tokens of a prompt that it cannot have read all of it. Repeated signs count once: a tokenizer
    takes many of them together."""
    if tokens_in is None:
        return False
    texts = [message["content"] for message in messages]
    most = _MOST_CHARACTERS * max(tokens_in, _SHORT)
    return sum(map(len, texts)) > most and sum(len(_RUN.sub(r"\1", text)) for text in texts) > most


def how_counted(model: str = "") -> str:
    """How `count_tokens` counts for this model: the name of the encoding, marked where it is only an estimate."""
    if _encoding(_name(model)) is None:
        return f"estimated from {CHARACTERS_PER_TOKEN} characters a token"
    bare = model.rsplit("/", 1)[-1]
    exact = bare.startswith((*_O200K, "gpt-4", "gpt-3.5"))
    return _name(model) if exact else f"estimated with {_name(model)}"


def _name(model: str) -> str:
    return "o200k_base" if model.rsplit("/", 1)[-1].startswith(_O200K) else "cl100k_base"


@lru_cache(maxsize=2)
def _encoding(name: str) -> Any:
    file = _litellm_file(f"{_TOKENIZERS}/{_FILES[name]}")
    if file is None:
        return None
    import tiktoken

    with in_environment({"TIKTOKEN_CACHE_DIR": str(file.parent)}):  # so it downloads nothing
        return tiktoken.get_encoding(name)

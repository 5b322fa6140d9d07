"""Token counts without a network: tiktoken with the encoding files that litellm bundles. litellm is not imported."""

from __future__ import annotations

import re
from binascii import a2b_base64
from collections.abc import Iterable, Mapping
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

# the files are named by the sha1 of the URL that they came from, as in tiktoken's cache
_FILES = {
    "cl100k_base": "9b5ad71b2ce5302211f9c61530b329a4922fc6a4",
    "o200k_base": "fb374d419588a4632f3f557e76b4b70aebbca790",
}
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
    """The encoding; None without its file or tiktoken."""
    spec = find_spec("litellm")
    folders = [Path(p) for p in (spec.submodule_search_locations or ())] if spec else []
    file = next((f for p in folders if (f := p / "litellm_core_utils/tokenizers" / _FILES[name]).is_file()), None)
    if file is None or find_spec("tiktoken") is None:
        return None
    from tiktoken import Encoding

    words = file.read_bytes().split()  # a token in base64 and its rank, alternately, 100,000 of each
    ranks = dict(zip(map(a2b_base64, words[::2]), map(int, words[1::2]), strict=True))
    return Encoding(name, pat_str=_PATTERNS[name], mergeable_ranks=ranks, special_tokens={})


_WORD = r"""[^\r\n\p{L}\p{N}]?"""
_PATTERNS = {
    "cl100k_base": r"""'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s""",
    "o200k_base": "|".join(
        [
            _WORD + r"""[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?""",
            _WORD + r"""[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?""",
            r"""\p{N}{1,3}""",
            r""" ?[^\s\p{L}\p{N}]+[\r\n/]*""",
            r"""\s*[\r\n]+""",
            r"""\s+(?!\S)""",
            r"""\s+""",
        ]
    ),
}

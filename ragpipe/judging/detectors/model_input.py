"""Texts as a model's tokens, by its tokenizer.json. Special tokens that a text spells out are text, never structure."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ragpipe.core.errors import DataError, Problem
from ragpipe.judging.detectors.token_batches import ModelInput

_LOOKALIKES = str.maketrans({"<": "‹", ">": "›", "[": "［", "]": "］", "|": "¦"})


@dataclass(frozen=True, slots=True)
class TextTokens:
    """A model's input with the place of each token: `places` are its characters, (0, 0) for special tokens, and `sides` the text it
    is of: 0 for the first, 1 for the second, None for special tokens."""

    model_input: ModelInput
    places: tuple[tuple[int, int], ...]
    sides: tuple[int | None, ...]

    def __len__(self) -> int:
        return len(self.places)


class TokenReader:
    """A tokenizer, read from its file."""

    def __init__(self, path: Path):
        """Raises DataError for a file that is no tokenizer."""
        from tokenizers import Tokenizer

        try:
            text = path.read_text(encoding="utf-8")
            added = json.loads(text).get("added_tokens", [])
            self._tokenizer: Any = Tokenizer.from_str(text)
        except Exception as error:  # the library raises plain exceptions
            problem = Problem(str(path), "tokenizer", str(error)[:200], "a tokenizer.json", "download it again")
            raise DataError("a detector's tokenizer cannot be read", [problem]) from error
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._special = sorted((token["content"] for token in added if token.get("special")), key=len, reverse=True)

    def plain(self, text: str) -> str:
        """The text with every special token that it spells out (`</s>`, `[SEP]`) made ordinary, character for character."""
        for token in self._special:
            if token in text:
                text = text.replace(token, _ordinary(token))
        return text

    def encode(self, first: str, second: str | None = None) -> TextTokens:
        """One text or a pair as the model was trained on it, with the special tokens that the tokenizer adds. Texts are taken as they
        are: pass what others wrote through `plain`."""
        encoding = self._tokenizer.encode(first, second) if second is not None else self._tokenizer.encode(first)
        places = tuple(
            (0, 0) if special else place
            for place, special in zip(encoding.offsets, encoding.special_tokens_mask, strict=True)
        )
        ids, segments = tuple(encoding.ids), tuple(encoding.type_ids)
        return TextTokens(ModelInput(ids, segments), places, tuple(encoding.sequence_ids))

    def token_places(self, text: str) -> list[tuple[int, int]]:
        """The characters of each token of a text, without special tokens."""
        return list(self._tokenizer.encode(text, add_special_tokens=False).offsets)


def _ordinary(token: str) -> str:
    """A text of the same length that is not the token: its signs of structure, or else its first letter, by lookalikes."""
    changed = token.translate(_LOOKALIKES)
    return changed if changed != token else "‹" + token[1:]

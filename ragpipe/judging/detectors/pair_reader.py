"""Whether a passage supports a claim: MiniCheck's Flan-T5, HHEM-2.1, and cross-encoders for natural language inference.

Each family has a form: how passage and claim become one input, and which logits mean what. A passage that is too long is read in parts;
the part that supports the claim most counts, as the one that contradicts it most does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ragpipe.core.errors import DataError, Problem
from ragpipe.judging.detectors.model_folder import ARCHITECTURE
from ragpipe.judging.detectors.model_input import TextTokens, TokenReader
from ragpipe.judging.detectors.passage_parts import Place, split_passage
from ragpipe.judging.detectors.reading import DIGITS, Reading, Texts
from ragpipe.judging.detectors.settings import DetectorSettings
from ragpipe.judging.detectors.token_batches import Floats, Logits, ModelInput, compute_in_batches, softmax

MINICHECK_WORDS = 500
"""Words of a part, as MiniCheck's authors split documents for Flan-T5."""
HHEM_PROMPT = "<pad> Determine if the hypothesis is true given the premise?\n\nPremise: {text1}\n\nHypothesis: {text2}"
"""The text around passage and claim with which HHEM-2.1 was trained."""
_END = "</s>"  # what ends a text of T5
_SLACK = 4  # tokens that a passage can have more in its place than alone
_FEWEST = 16  # tokens of a passage that are worth reading


class PairForm(Protocol):
    """How a family asks: the input of a pair, the places of the labels among the logits, and the words of a part."""

    @property
    def support(self) -> int: ...
    @property
    def contradiction(self) -> int | None: ...
    @property
    def words(self) -> int | None: ...
    def encode(self, passage: str, claim: str) -> TextTokens: ...


@dataclass(frozen=True, slots=True)
class MiniCheckForm:
    """`predict: ` passage `</s>` claim. The logits are those of the two tokens that stand for no and for yes."""

    tokens: TokenReader
    support: int = 1
    contradiction: int | None = None
    words: int | None = MINICHECK_WORDS

    def encode(self, passage: str, claim: str) -> TextTokens:
        return self.tokens.encode(f"predict: {passage}{_END}{claim}")


@dataclass(frozen=True, slots=True)
class HhemForm:
    """Passage and claim in `HHEM_PROMPT`. The logits are of the first token; label 1 is consistent."""

    tokens: TokenReader
    support: int = 1
    contradiction: int | None = None
    words: int | None = None

    def encode(self, passage: str, claim: str) -> TextTokens:
        head, _, rest = HHEM_PROMPT.partition("{text1}")
        between, _, _ = rest.partition("{text2}")
        return self.tokens.encode(f"{head}{passage}{between}{claim}")


@dataclass(frozen=True, slots=True)
class NliForm:
    """Passage and claim as the two texts of a cross-encoder. Which logit means what, its `id2label` says."""

    tokens: TokenReader
    support: int
    contradiction: int | None
    words: int | None = None

    def encode(self, passage: str, claim: str) -> TextTokens:
        return self.tokens.encode(passage, claim)


def nli_form(tokens: TokenReader, architecture: Mapping[str, Any], place: str) -> NliForm:
    """The form of a cross-encoder by the labels in its config.json. Raises DataError where none of them is entailment."""
    labels = architecture.get("id2label")
    names = {str(i): str(label) for i, label in labels.items()} if isinstance(labels, Mapping) else {}
    support = [int(i) for i, name in names.items() if i.isdecimal() and name.casefold().startswith("entail")]
    contradiction = [int(i) for i, name in names.items() if i.isdecimal() and name.casefold().startswith("contradict")]
    if len(support) != 1 or len(contradiction) > 1:
        label_list = ", ".join(f"{i}: {name}" for i, name in names.items()) or "none"
        expected = "one label entailment, and contradiction if there is one"
        fix = "name the labels in id2label as the model's card does, or take another model"
        raise DataError(
            "the model is no NLI model", [Problem(f"{place}/{ARCHITECTURE}", "id2label", label_list, expected, fix)]
        )
    return NliForm(tokens, support[0], contradiction[0] if contradiction else None)


class PairReader:
    """Readings of pairs of a passage and a claim. `limit` is how many tokens the model reads at once."""

    def __init__(self, settings: DetectorSettings, tokens: TokenReader, form: PairForm, logits: Logits, limit: int):
        self._settings, self._tokens, self._form, self._logits, self._limit = settings, tokens, form, logits, limit

    def __call__(self, asked: Sequence[Texts]) -> list[Reading]:
        """One reading per pair, in order."""
        plans = [self._plan(*texts) for texts in asked]
        inputs = [each for plan in plans if not isinstance(plan, str) for each, _ in plan]
        results = iter(compute_in_batches(inputs, self._logits, self._settings.batch_tokens))
        readings = []
        for plan in plans:
            if isinstance(plan, str):
                readings.append(Reading(too_long=plan))
            else:
                readings.append(self._reading([(place, next(results)) for _, place in plan]))
        return readings

    def _plan(self, passage: str, claim: str) -> list[tuple[ModelInput, Place]] | str:
        """The inputs of a pair, each with its part of the passage; a sentence where it cannot be read."""
        passage, claim = self._tokens.plain(passage), self._tokens.plain(claim)
        at_once = self._form.encode(passage, claim)
        is_short = self._form.words is None or len(passage.split()) <= self._form.words
        if len(at_once) <= self._limit and is_short:
            return [(at_once.model_input, (0, len(passage)))]
        if self._settings.overflow == "too_long" and len(at_once) > self._limit:
            return f"passage and claim have {len(at_once):,} tokens, the model reads {self._limit:,}"
        room = self._limit - len(self._form.encode("", claim)) - _SLACK
        if room < _FEWEST:
            return f"the claim leaves {max(room, 0):,} of {self._limit:,} tokens for the passage"
        places = split_passage(passage, self._tokens.token_places(passage), room, self._form.words)
        inputs = [(self._form.encode(passage[start:end].strip(), claim), (start, end)) for start, end in places]
        longest = max(len(encoded) for encoded, _ in inputs)
        if longest > self._limit:
            return f"a part of the passage has {longest:,} tokens with the claim, the model reads {self._limit:,}"
        return [(encoded.model_input, place) for encoded, place in inputs]

    def _reading(self, parts: Sequence[tuple[Place, Floats]]) -> Reading:
        shares = [softmax(logits) for _, logits in parts]
        supports = [float(share[self._form.support]) for share in shares]
        index = self._form.contradiction
        contradictions = [float(share[index]) for share in shares] if index is not None else []
        best = supports.index(max(supports))
        if contradictions and max(contradictions) > max(supports):
            best = contradictions.index(max(contradictions))
        start, end = parts[best][0]
        return Reading(
            support=round(max(supports), DIGITS),
            contradiction=round(max(contradictions), DIGITS) if contradictions else None,
            start=start,
            end=end,
            parts=len(parts),
        )


FORMS: dict[str, Callable[[TokenReader], PairForm]] = {"minicheck": MiniCheckForm, "hhem": HhemForm}
"""The forms that need to know nothing of the model."""

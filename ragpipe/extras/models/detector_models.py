"""Readings of texts by the packages of the models' authors (extra `models`). No code of a model's folder runs, nothing is unpickled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pydantic import Field

from ragpipe.core.errors import DataError, Problem
from ragpipe.core.text import sentences
from ragpipe.extras.models.detector_settings import LANGUAGE, DetectorSettings
from ragpipe.judge.answer_type import Answer, Integer, Share

Texts = tuple[str, ...]
"""What is read: the question (may be empty), the answer and the passages, or a claim and the passages."""
_SAFE: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False, "use_safetensors": True}
_DIGITS = 6


class TokenReading(Answer):
    """One token of an answer: its characters `start` to `end`, and the probability that nothing supports it."""

    start: Integer
    end: Integer
    unsupported: Share


class Reading(Answer):
    """What a model found, without a verdict: another threshold needs no new one. Of a claim the probabilities that each passage supports and
    contradicts it (none where the model does not tell); of an answer its tokens; or what did not fit."""

    support: list[Share] = Field(default_factory=list)
    contradiction: list[Share] = Field(default_factory=list)
    tokens: list[TokenReading] = Field(default_factory=list)
    too_long: str | None = None


class TooLong(Exception):
    """What does not fit into the model even without passages."""


def reading_texts(settings: DetectorSettings) -> Callable[[Sequence[Texts]], list[str]]:
    """What computes the texts of readings; the model is loaded for the first one. Raises DataError for files that are not those of the
    settings, for a model of another kind, and where the device cannot compute."""
    read: Callable[..., Reading] | None = None

    def compute(asked: Sequence[Texts]) -> list[str]:
        nonlocal read
        try:
            read = read or open_reader(settings)
            return [read(*texts).model_dump_json(exclude_defaults=True) for texts in asked]
        except DataError:
            raise
        except Exception as error:  # the packages raise what they like
            found = (str(error).splitlines() or [type(error).__name__])[0][:200]
            fix = "judge.family of that model, another model, or the processor (CUDA_VISIBLE_DEVICES=)"
            problem = Problem(str(settings.folder), "model", found, f"a model of the family {settings.family}", fix)
            raise DataError("a detector's model cannot be used", [problem]) from error

    return compute


def open_reader(settings: DetectorSettings) -> Callable[..., Reading]:
    """What reads one `Texts`, its model loaded. Raises DataError where something is missing, and what the packages raise."""
    if (missing := settings.missing()) is not None:
        raise DataError("the detector's files are not those of the run", [Problem("the configuration", *missing)])
    import transformers

    transformers.logging.set_verbosity_error()  # what matters is raised
    transformers.logging.disable_progress_bar()
    head, most, open_family = _FAMILIES[settings.family]
    heads = str(transformers.PretrainedConfig.get_config_dict(str(settings.folder))[0].get("architectures"))
    if head not in heads:
        raise ValueError(f"architectures: {heads}")  # a missing head would be filled at random, with a warning
    tokenizer = transformers.AutoTokenizer.from_pretrained(str(settings.folder), **_SAFE)
    read = open_family(str(settings.folder), tokenizer, min(most, tokenizer.model_max_length))

    def read_plain(*texts: str) -> Reading:
        for token in tokenizer.all_special_tokens:  # one that a text spells out is text, character for character
            texts = tuple(text.replace(token, "‹" + token[1:]) for text in texts)
        try:
            return read(*texts)
        except TooLong:
            return Reading(too_long="question and answer, or the claim, leave no room for a passage")

    return read_plain


def _lettucedetect(folder: str, tokenizer: Any, limit: int) -> Callable[..., Reading]:
    """All passages at once. Where they do not fit, in parts: a token is unsupported only as far as every part says so."""
    from lettucedetect.detectors.prompt_utils import PromptUtils
    from lettucedetect.models.inference import HallucinationDetector

    detector = HallucinationDetector(method="transformer", model_path=folder, max_length=limit, lang=LANGUAGE, **_SAFE)

    def read(question: str, answer: str, *passages: str) -> Reading:
        def prompt(part: Sequence[str]) -> str:
            return str(PromptUtils.format_context(list(part), question or None, LANGUAGE))

        parts = _parts(passages, lambda part: len(tokenizer(prompt(part), answer)["input_ids"]) <= limit)
        found = [detector.predict_prompt(prompt(part), answer, output_format="tokens") for part in parts]
        least = [round(min(each["prob"] for each in same), _DIGITS) for same in zip(*found, strict=True)]
        places = tokenizer(answer, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
        each = zip(places, least[: len(places)], strict=True)  # the last is the special token at the end
        return Reading(tokens=[TokenReading(start=start, end=end, unsupported=share) for (start, end), share in each])

    return read


def _nli(folder: str, tokenizer: Any, limit: int) -> Callable[..., Reading]:
    """A cross-encoder: a claim against each passage that has a word. Of a passage in parts the highest shares count."""
    import transformers

    model: Any = transformers.AutoModelForSequenceClassification.from_pretrained(folder, **_SAFE)
    classify: Any = transformers.pipeline("text-classification", model, tokenizer=tokenizer)
    labels = [str(label) for label in model.config.id2label.values()]
    of_use = [[name for name in labels if name.casefold().startswith(start)] for start in ("entail", "contradict")]
    if len(of_use[0]) != 1:
        raise ValueError(f"the labels {', '.join(labels)}: none, or more than one, is entailment")

    def shares(claim: str, passage: str) -> list[float]:
        """Of entailment and, where the model has that label, of contradiction."""
        if not any(c.isalnum() for c in passage):
            return [0.0 for names in of_use if names]
        parts = _parts([passage], lambda part: len(tokenizer(part[0], claim)["input_ids"]) <= limit)
        rows = classify([{"text": part, "text_pair": claim} for (part,) in parts], top_k=None, function_to_apply="softmax")
        found = [{one["label"]: one["score"] for one in row} for row in rows]
        return [round(max(row[names[0]] for row in found), _DIGITS) for names in of_use if names]

    def read(claim: str, *passages: str) -> Reading:
        found = [shares(claim, passage) for passage in passages]
        return Reading(support=[one[0] for one in found], contradiction=[share for one in found for share in one[1:]])

    return read


_FAMILIES = {"lettucedetect": ("ForTokenClassification", 4096, _lettucedetect), "nli": ("ForSequenceClassification", 512, _nli)}
"""By family: the head that its models have, the tokens at once as the authors set them, and what opens a reader."""


def _parts(passages: Sequence[str], fits: Callable[[Sequence[str]], bool]) -> list[Sequence[str]]:
    """The passages in groups that fit, halved until they do, one of them between its sentences or words. Raises TooLong."""
    if fits(passages):
        return [passages]
    ways = (passages, *(pieces("".join(passages[:1])) for pieces in (sentences, str.split)))
    pieces = next((pieces for pieces in ways if len(pieces) > 1), None)
    if pieces is None:
        raise TooLong
    halves = pieces[: len(pieces) // 2], pieces[len(pieces) // 2 :]
    groups = halves if len(passages) > 1 else [[" ".join(half)] for half in halves]
    return [part for group in groups for part in _parts(group, fits)]

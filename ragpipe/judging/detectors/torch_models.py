"""The models of the detectors, by torch and transformers (extra `detector`). No code of a model's folder runs, nothing is unpickled."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from ragpipe.core.errors import DataError, Problem
from ragpipe.judging.detectors.model_folder import ARCHITECTURE, WEIGHTS
from ragpipe.judging.detectors.model_input import TokenReader
from ragpipe.judging.detectors.pair_reader import FORMS, PairForm, PairReader, nli_form
from ragpipe.judging.detectors.reading import Reading, Texts
from ragpipe.judging.detectors.settings import DetectorSettings
from ragpipe.judging.detectors.token_batches import Floats, ModelInput, OutOfMemory
from ragpipe.judging.detectors.unsupported_spans import SpanReader

MINICHECK_LABELS = [3, 209]
"""The tokens of T5's vocabulary whose logits mean no support and support, as MiniCheck was trained."""
_T5_PREFIX = "t5."
_FAMILY_WITH_OFFSET = ("roberta", "xlm-roberta", "camembert")  # their first positions are for padding
Reader = Callable[[Sequence[Texts]], list[Reading]]


def open_reader(settings: DetectorSettings) -> Reader:
    """The reader of these settings, its model loaded.

    Raises DataError for files that are not those of the settings, for a model of another kind, and for a device that is not there.
    """
    missing = settings.missing()
    if missing is not None:
        problem = Problem("the configuration", missing.key, missing.found, missing.expected, missing.fix)
        raise DataError("the detector's files are not those of the run", [problem])
    paths = {name: path for name, path in settings.files().items() if path is not None}
    folder = paths["weights"].parent
    architecture = _architecture(paths["architecture"])
    tokens = TokenReader(paths["tokenizer"])
    model = TorchLogits(settings, folder)
    limit = _limit(settings, architecture, folder)
    if settings.family == "lettucedetect":
        return SpanReader(settings, tokens, model, limit)
    form: PairForm = (
        nli_form(tokens, architecture, str(folder)) if settings.family == "nli" else FORMS[settings.family](tokens)
    )
    return PairReader(settings, tokens, form, model, limit)


class TorchLogits:
    """A loaded model: the logits of a batch (`token_batches.Logits`)."""

    def __init__(self, settings: DetectorSettings, folder: Path):
        import torch

        self._torch, self._family = torch, settings.family
        self._device = _device(torch, settings.device)
        with _quiet():
            model = _hhem(folder) if settings.family == "hhem" else _published(settings.family, folder)
        self._model = model.to(device=self._device, dtype=getattr(torch, settings.dtype)).eval()
        config = model.config
        self._padding = getattr(config, "pad_token_id", None) or 0
        self._has_segments = (getattr(config, "type_vocab_size", 0) or 0) > 1

    def __call__(self, batch: Sequence[ModelInput]) -> list[Floats]:
        torch = self._torch
        inputs = self._padded(batch)
        try:
            with torch.inference_mode():
                logits = self._logits(inputs).float().cpu().numpy()
        except torch.OutOfMemoryError as error:
            raise OutOfMemory from error
        if self._family == "lettucedetect":
            return [np.asarray(row[: len(each.ids)]) for row, each in zip(logits, batch, strict=True)]
        return [np.asarray(row) for row in logits]

    def _padded(self, batch: Sequence[ModelInput]) -> dict[str, Any]:
        longest = max(len(each.ids) for each in batch)

        def rows(values: Sequence[Sequence[int]], filler: int) -> Any:
            return self._torch.tensor([[*row, *[filler] * (longest - len(row))] for row in values], device=self._device)

        inputs = {
            "input_ids": rows([each.ids for each in batch], self._padding),
            "attention_mask": rows([[1] * len(each.ids) for each in batch], 0),
        }
        return (
            {**inputs, "token_type_ids": rows([each.segments for each in batch], 0)} if self._has_segments else inputs
        )

    def _logits(self, inputs: dict[str, Any]) -> Any:
        if self._family == "minicheck":
            first = self._torch.zeros((len(inputs["input_ids"]), 1), dtype=self._torch.long, device=self._device)
            return self._model(**inputs, decoder_input_ids=first).logits[:, 0, MINICHECK_LABELS]
        logits = self._model(**inputs).logits
        return logits[:, 0] if self._family == "hhem" else logits


def _published(family: str, folder: Path) -> Any:
    """A model by its own config.json. Raises DataError where the weights lack a part, which would be filled at random."""
    import transformers
    from safetensors import SafetensorError

    classes = {
        "lettucedetect": transformers.AutoModelForTokenClassification,
        "minicheck": transformers.AutoModelForSeq2SeqLM,
        "nli": transformers.AutoModelForSequenceClassification,
    }
    try:
        model, loading = classes[family].from_pretrained(
            str(folder),
            local_files_only=True,
            trust_remote_code=False,
            use_safetensors=True,
            output_loading_info=True,
        )
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
        raise _unfit(
            folder, family, str(error).splitlines()[0][:200] if str(error) else type(error).__name__
        ) from error
    absent = sorted(loading["missing_keys"]) + sorted(str(key) for key in loading.get("mismatched_keys", ()))
    if absent:
        raise _unfit(folder, family, f"weights without {', '.join(absent[:3])}")
    if family == "lettucedetect" and model.config.num_labels != 2:
        raise _unfit(folder, family, f"a model of {model.config.num_labels} labels")
    return model


def _hhem(folder: Path) -> Any:
    """HHEM-2.1 without its own code: a T5 encoder that classifies tokens. Its sizes are read from its weights."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file
    from transformers import T5Config, T5ForTokenClassification

    try:
        stored = load_file(str(folder / WEIGHTS))
        weights = {name.removeprefix(_T5_PREFIX): tensor for name, tensor in stored.items()}
        model = T5ForTokenClassification(T5Config(**_t5_sizes(weights)))
        result = model.load_state_dict(weights, strict=False)
    except (KeyError, RuntimeError, SafetensorError) as error:
        raise _unfit(folder, "hhem", f"other weights ({str(error).splitlines()[0][:150]})") from error
    absent = set(result.missing_keys) - {"transformer.encoder.embed_tokens.weight"}
    if absent or result.unexpected_keys:
        raise _unfit(
            folder, "hhem", f"weights without or with {', '.join(sorted([*absent, *result.unexpected_keys])[:3])}"
        )
    model.transformer.encoder.embed_tokens.weight = model.transformer.shared.weight
    return model


def _t5_sizes(weights: dict[str, Any]) -> dict[str, Any]:
    """The sizes of a T5 encoder (flan-t5-base in the published model), from the shapes of its weights."""
    block = "transformer.encoder.block.0.layer"
    vocabulary, width = weights["transformer.shared.weight"].shape
    buckets, heads = weights[f"{block}.0.SelfAttention.relative_attention_bias.weight"].shape
    return {
        "vocab_size": vocabulary,
        "d_model": width,
        "num_heads": heads,
        "d_kv": weights[f"{block}.0.SelfAttention.q.weight"].shape[0] // heads,
        "d_ff": weights[f"{block}.1.DenseReluDense.wi_0.weight"].shape[0],
        "num_layers": len({name.split(".")[3] for name in weights if name.startswith("transformer.encoder.block.")}),
        "relative_attention_num_buckets": buckets,
        "feed_forward_proj": "gated-gelu",
        "num_labels": weights["classifier.weight"].shape[0],
        "classifier_dropout": 0.0,
    }


def _unfit(folder: Path, family: str, state: str) -> DataError:
    expected = f"the weights of a model of the family {family}, in one {WEIGHTS}"
    fix = "name the family that the model belongs to (judge.family), or another model"
    return DataError("a detector's model cannot be loaded", [Problem(str(folder), "model", state, expected, fix)])


def _architecture(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        problem = Problem(str(path), "file", str(error)[:200], "a JSON object", "download it again")
        raise DataError("a detector's config.json cannot be read", [problem]) from error
    return content if isinstance(content, dict) else {}


def _limit(settings: DetectorSettings, architecture: dict[str, Any], folder: Path) -> int:
    """Tokens that are read at once: those of the settings, and no more than the model has places for. T5 has no such bound."""
    places = architecture.get("max_position_embeddings")
    if not isinstance(places, int) or settings.family in ("minicheck", "hhem"):
        return settings.limit
    if architecture.get("model_type") in _FAMILY_WITH_OFFSET:
        places -= 2
    if settings.max_tokens is not None and settings.max_tokens > places:
        problem = Problem(
            f"{folder}/{ARCHITECTURE}",
            "judge.max_tokens",
            f"{settings.max_tokens:,}",
            f"at most {places:,}",
            "leave judge.max_tokens out: longer passages are read in parts",
        )
        raise DataError("the model reads fewer tokens at once", [problem])
    return min(settings.limit, places)


def _device(torch: Any, name: str | None) -> str:
    """The device that computes. Raises DataError where it is not there."""
    has_cuda, has_mps = torch.cuda.is_available(), torch.backends.mps.is_available()
    if name is None:
        return "cuda" if has_cuda else "mps" if has_mps else "cpu"
    cards = torch.cuda.device_count() if has_cuda else 0
    number = int(name.partition(":")[2] or 0)
    if (name.startswith("cuda") and number >= cards) or (name == "mps" and not has_mps):
        expected = "cpu" + "".join(f", cuda:{card}" for card in range(cards)) + (", mps" if has_mps else "")
        problem = Problem("the configuration", "judge.device", name, expected, "judge.device=cpu, or leave it out")
        raise DataError("the detector's device is not there", [problem])
    return name


@contextmanager
def _quiet() -> Iterator[None]:
    """No progress bars and warnings of transformers while a model is loaded: what matters is raised."""
    from transformers.utils import logging

    level = logging.get_verbosity()
    had_bar = logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if had_bar:
            logging.enable_progress_bar()

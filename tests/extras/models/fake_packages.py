"""transformers and lettucedetect replaced by one rule over words, so that runs with a detector need no network of a model: a word of the
answer is unsupported where the prompt does not have it (probability .881)."""

import json
import math
import re
import sys
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from ragpipe.extras.models import detector_settings

_WORD = re.compile(r"\w+|[^\w\s]")


def write_files(folder: Path) -> Path:
    """A folder with the three files of a model; its weights are no weights: what hashes and looks needs no more."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps({"architectures": ["ModernBertForTokenClassification"]}), encoding="utf-8")
    (folder / "tokenizer.json").write_text("{}", encoding="utf-8")
    (folder / "model.safetensors").write_bytes(b"weights of " + folder.name.encode())
    return folder


def share(logit: float) -> float:
    return 1 / (1 + math.exp(-logit))


class Packages:
    """What stands in for the packages. `asked` are the inputs of the networks, `loaded` the folders of the models."""

    def __init__(self, limit: int):
        self.limit = limit
        self.asked: list[tuple[str, str]] = []
        self.loaded: list[str] = []

    def tokenizer(self, folder: str, **options: Any) -> Any:
        assert options == {"local_files_only": True, "trust_remote_code": False, "use_safetensors": True}

        def encode(text: str, pair: str = "", *, add_special_tokens: bool = True, return_offsets_mapping: bool = False) -> Any:
            places = [match.span() for match in _WORD.finditer(text)]
            return {"input_ids": [*places, *_WORD.findall(pair), *"###"], "offset_mapping": places}

        encode.model_max_length, encode.all_special_tokens = self.limit, ["[SEP]"]  # type: ignore[attr-defined]
        return encode

    def detector(self, *, method: str, model_path: str, **options: Any) -> Any:
        assert (method, options["trust_remote_code"]) == ("transformer", False)
        self.loaded.append(model_path)

        def predict_prompt(prompt: str, answer: str, output_format: str) -> list[dict[str, float]]:
            assert output_format == "tokens"
            self.asked.append((prompt, answer))
            known = set(_WORD.findall(prompt))
            return [{"prob": share(-2 if word in known else 2)} for word in [*_WORD.findall(answer), "[SEP]"]]

        return SimpleNamespace(predict_prompt=predict_prompt)


def install(monkeypatch: pytest.MonkeyPatch, limit: int = 1000) -> Packages:
    """Put the fakes where the packages would be imported from. `limit`: tokens that the models read at once."""
    packages = Packages(limit)
    modules = {
        name: ModuleType(name) for name in ("lettucedetect.models.inference", "lettucedetect.detectors.prompt_utils", "transformers")
    }
    vars(modules["lettucedetect.models.inference"])["HallucinationDetector"] = packages.detector
    prompts = SimpleNamespace(format_context=lambda context, question, lang: " ".join([question or "", *context]))
    vars(modules["lettucedetect.detectors.prompt_utils"])["PromptUtils"] = prompts
    vars(modules["transformers"]).update(
        logging=SimpleNamespace(set_verbosity_error=lambda: None, disable_progress_bar=lambda: None),
        AutoTokenizer=SimpleNamespace(from_pretrained=packages.tokenizer),
        PretrainedConfig=SimpleNamespace(
            get_config_dict=lambda folder: (json.loads((Path(folder) / "config.json").read_text(encoding="utf-8")), {})
        ),
    )
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(detector_settings, "find_spec", lambda name: object())
    return packages


def uninstall(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(detector_settings, "find_spec", lambda name: None)


IS_INSTALLED = find_spec("torch") is not None

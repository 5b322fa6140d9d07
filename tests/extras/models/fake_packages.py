"""transformers and lettucedetect replaced by one rule over words, so that runs with a detector need no network of a model: a word of the
answer is unsupported where the prompt does not have it (probability .881), a claim is supported where a passage has nine tenths of its
words."""

import json
import math
import re
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

from ragpipe.extras.models import detector_settings

_WORD = re.compile(r"\w+|[^\w\s]")
ARCHITECTURES = {"lettucedetect": "ModernBertForTokenClassification", "nli": "BertForSequenceClassification"}


def write_files(folder, family="lettucedetect"):
    """A folder with the three files of a model; its weights are no weights: what hashes and looks needs no more."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps({"architectures": [ARCHITECTURES[family]]}), encoding="utf-8")
    (folder / "tokenizer.json").write_text("{}", encoding="utf-8")
    (folder / "model.safetensors").write_bytes(b"weights of " + folder.name.encode())
    return folder


def share(logit):
    return 1 / (1 + math.exp(-logit))


class Packages:
    """What stands in for the packages. `asked` are the inputs of the networks, `loaded` the folders of the models."""

    def __init__(self, limit):
        self.limit = limit
        self.asked: list[tuple[str, str]] = []
        self.loaded: list[str] = []
        self.labels = {0: "contradiction", 1: "Entailment"}

    def tokenizer(self, folder, **options):
        assert options == {"local_files_only": True, "trust_remote_code": False, "use_safetensors": True}

        def encode(text, pair="", *, add_special_tokens=True, return_offsets_mapping=False):
            places = [match.span() for match in _WORD.finditer(text)]
            return {"input_ids": [*places, *_WORD.findall(pair), *"###"], "offset_mapping": places}

        encode.model_max_length, encode.all_special_tokens = self.limit, ["[SEP]"]  # type: ignore[attr-defined]
        return encode

    def detector(self, *, method, model_path, **options):
        assert (method, options["trust_remote_code"]) == ("transformer", False)
        self.loaded.append(model_path)

        def predict_prompt(prompt, answer, output_format):
            assert output_format == "tokens"
            self.asked.append((prompt, answer))
            known = set(_WORD.findall(prompt))
            return [{"prob": share(-2 if word in known else 2)} for word in [*_WORD.findall(answer), "[SEP]"]]

        return SimpleNamespace(predict_prompt=predict_prompt)

    def classifier(self, folder, **options):
        assert options == {"local_files_only": True, "trust_remote_code": False, "use_safetensors": True}
        self.loaded.append(folder)
        return SimpleNamespace(config=SimpleNamespace(id2label=self.labels))

    def pipeline(self, task, model, **_):
        assert task == "text-classification"

        def classify(inputs, **_):
            rows = []
            for one in inputs:
                self.asked.append((one["text"], one["text_pair"]))
                words, known = _WORD.findall(one["text_pair"]), set(_WORD.findall(one["text"]))
                support = share(40 * sum(word in known for word in words) / max(1, len(words)) - 36)
                rows.append([{"label": self.labels[1], "score": support}, {"label": self.labels[0], "score": 1 - support}])
            return rows

        return classify


def install(monkeypatch, limit=1000):
    """Put the fakes where the packages would be imported from. `limit`: tokens that the models read at once."""
    packages = Packages(limit)
    modules = {
        name: ModuleType(name) for name in ("lettucedetect.models.inference", "lettucedetect.detectors.prompt_utils", "transformers")
    }
    vars(modules["lettucedetect.models.inference"])["HallucinationDetector"] = packages.detector
    prompts = SimpleNamespace(format_context=lambda context, question, lang: " ".join([question or "", *context]))
    vars(modules["lettucedetect.detectors.prompt_utils"])["PromptUtils"] = prompts
    vars(modules["transformers"]).update(
        pipeline=packages.pipeline,
        logging=SimpleNamespace(set_verbosity_error=lambda: None, disable_progress_bar=lambda: None),
        AutoTokenizer=SimpleNamespace(from_pretrained=packages.tokenizer),
        AutoModelForSequenceClassification=SimpleNamespace(from_pretrained=packages.classifier),
        PretrainedConfig=SimpleNamespace(
            get_config_dict=lambda folder: (json.loads((Path(folder) / "config.json").read_text(encoding="utf-8")), {})
        ),
    )
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(detector_settings, "find_spec", lambda name: object())
    return packages


def uninstall(monkeypatch):
    monkeypatch.setattr(detector_settings, "find_spec", lambda name: None)

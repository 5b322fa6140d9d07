"""The `judge` section of a detector: where its files are looked for, what its identity is, and what is said where something is
missing."""

import hashlib
import shlex
import tomllib

import pytest
from pydantic import ValidationError

from ragpipe.core.digest import sha256
from ragpipe.extras.models import INSTALL, detector_settings
from ragpipe.extras.models.detector_settings import MODELS, DetectorSettings
from tests.extras.models.fake_packages import write_files
from tests.support.pages import ROOT

COMMIT, OTHER = "a" * 40, "b" * 40


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path / "hub"


@pytest.fixture
def with_packages(monkeypatch):
    monkeypatch.setattr(detector_settings, "find_spec", lambda name: object())


def published(cache, model, commit):
    """The folder of a model's files as the Hugging Face tools lay out their cache, with `commit` as its main branch."""
    home = cache / f"models--{model.replace('/', '--')}"
    (home / "refs").mkdir(parents=True)
    (home / "refs" / "main").write_text(commit, encoding="utf-8")
    return home / "snapshots" / commit


def test_the_hash_is_read_from_the_cache_and_recorded(cache, with_packages):
    folder = write_files(published(cache, MODELS["lettucedetect"], COMMIT))
    settings = DetectorSettings()
    assert settings.missing() is None
    contents = [(folder / name).read_bytes() for name in ("config.json", "model.safetensors", "tokenizer.json")]
    assert settings.files == sha256([hashlib.sha256(content).hexdigest() for content in contents])
    assert settings.label == f"{MODELS['lettucedetect']}@{settings.files[:8]}"
    (cache / "models--KRLabsOrg--lettucedect-base-modernbert-en-v1" / "refs" / "main").write_text(OTHER)
    recorded = DetectorSettings.model_validate_json(settings.model_dump_json())
    assert recorded == settings  # a recorded section stays what it is


def test_other_files_are_another_judge_and_a_moved_folder_is_not(tmp_path):
    one, same, other = (write_files(tmp_path / place / name) for place, name in (("x", "a"), ("y", "a"), ("x", "b")))
    identities = [DetectorSettings(path=str(folder)).identity_of_judge() for folder in (one, same, other)]
    assert identities[0] == identities[1] != identities[2]
    assert identities[0].keys() == {"rules", "family", "model", "files", "threshold"}


def test_what_is_not_in_the_cache_is_said_with_the_command_that_brings_it(cache, with_packages):
    missing, model = DetectorSettings().missing(), MODELS["lettucedetect"]
    assert (missing.key, missing.found, missing.fix) == ("judge.model", f"{model} is not in the cache", f"hf download {model}")


def test_a_model_without_a_tokenizer_or_with_pickled_weights_alone(cache, with_packages):
    folder = write_files(published(cache, "a/b", COMMIT), "nli")
    (folder / "tokenizer.json").unlink()
    missing = DetectorSettings(family="nli", model="a/b").missing()
    assert missing.found == f"{folder} without tokenizer.json"
    assert "save_pretrained" in missing.fix
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    own = DetectorSettings(family="nli", path=str(folder)).missing()
    assert own.found == f"{folder} without model.safetensors"


def test_files_of_another_hash_are_refused(tmp_path, with_packages):
    folder = write_files(tmp_path / "model")
    missing = DetectorSettings(path=str(folder), files="d" * 64).missing()
    assert (missing.key, missing.expected) == ("judge.files", "d" * 64)
    settings = DetectorSettings(path=str(folder))
    (folder / "model.safetensors").write_bytes(b"changed since")
    assert settings.missing().key == "judge.files"


def test_the_command_installs_the_packages_of_the_extra():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert shlex.split(INSTALL) == ["pip", "install", *project["optional-dependencies"]["models"]]


@pytest.mark.parametrize(("section", "message"), [
    ({"family": "nli"}, "name one with judge.model=owner/name"),
    ({"path": "x", "model": "a/b"}, "leave `model` out"),
    ({"model": "../../etc"}, "should match pattern"),
    ({"model": "just-a-name"}, "should match pattern"),
    ({"threshold": 1}, "less than 1"),
    ({"family": "bert"}, "lettucedetect"),
    ({"path": 3}, "valid string"),
])  # fmt: skip
def test_wrong_sections(section, message):
    with pytest.raises(ValidationError, match=message.replace(".", r"\.").replace("(", r"\(")):
        DetectorSettings(**section)

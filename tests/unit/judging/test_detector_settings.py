"""The `judge` section of a detector: where its files are looked for, what its identity is, and what is said where something is
missing."""

from __future__ import annotations

import hashlib
from importlib.util import find_spec

import pytest
from pydantic import ValidationError

from ragpipe.core.extras import install_command
from ragpipe.judging.detectors import settings as detector_settings
from ragpipe.judging.detectors.model_folder import hub_cache
from ragpipe.judging.detectors.settings import MODELS, DetectorSettings
from tests.support.tiny_detectors import published, write_files, write_tokenizer

COMMIT, OTHER = "a" * 40, "b" * 40
FILES = {"weights": "model.safetensors", "tokenizer": "tokenizer.json", "architecture": "config.json"}


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path / "hub"


@pytest.fixture
def with_torch(monkeypatch):
    """torch and transformers count as installed: nothing here imports them."""
    monkeypatch.setattr(detector_settings, "find_spec", lambda name: object())


def sha(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_the_cache_is_where_the_tools_of_the_hub_have_it(monkeypatch, tmp_path):
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert hub_cache() == tmp_path / ".cache/huggingface/hub"
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    assert str(hub_cache()) == "/x/huggingface/hub"
    monkeypatch.setenv("HF_HOME", "/home/hf")
    assert str(hub_cache()) == "/home/hf/hub"
    monkeypatch.setenv("HF_HUB_CACHE", "/hub")
    assert str(hub_cache()) == "/hub"


def test_commit_and_hashes_are_read_from_the_cache_and_recorded(cache, with_torch):
    folder = write_files(published(cache, MODELS["lettucedetect"], COMMIT))
    settings = DetectorSettings()
    assert settings.missing() is None
    assert settings.revision == COMMIT
    assert {name: getattr(settings, name) for name in FILES} == {name: sha(folder / file) for name, file in FILES.items()}
    assert settings.label == f"{MODELS['lettucedetect']}@{sha(folder / 'model.safetensors')[:8]}"
    (cache / "models--KRLabsOrg--lettucedect-base-modernbert-en-v1" / "refs" / "main").write_text(OTHER)
    assert DetectorSettings.model_validate_json(settings.model_dump_json()) == settings  # a recorded section stays what it is


def test_a_recorded_section_needs_no_files(cache):
    hashes = dict.fromkeys(FILES, "c" * 64)
    settings = DetectorSettings(revision=COMMIT, **hashes)
    assert settings.weights == "c" * 64
    assert settings.identity_of_judge()["revision"] == COMMIT


def test_other_weights_are_another_judge_and_a_moved_folder_is_not(tmp_path):
    one, same, other = (write_files(tmp_path / place / name) for place, name in (("x", "a"), ("y", "a"), ("x", "b")))
    identities = [DetectorSettings(path=str(folder)).identity_of_judge() for folder in (one, same, other)]
    assert identities[0] == identities[1]
    assert identities[0] != identities[2]
    assert not {"path", "device", "batch_tokens", "tokenizer_path"} & identities[0].keys()
    assert {"weights", "tokenizer", "architecture", "threshold", "overflow", "model", "revision"} <= identities[0].keys()


def test_what_is_not_in_the_cache_is_said_with_the_command_that_brings_it(cache, with_torch):
    missing = DetectorSettings().missing()
    assert missing.key == "judge.model"
    assert missing.found == f"{MODELS['lettucedetect']} is not in the cache"
    assert missing.fix == f"hf download {MODELS['lettucedetect']}"
    pinned = DetectorSettings(model="a/b", revision=OTHER).missing()
    assert pinned.fix == f"hf download a/b --revision {OTHER}"


def test_a_model_without_a_tokenizer_file_or_in_another_form(cache, with_torch):
    folder = write_files(published(cache, "a/b", COMMIT))
    (folder / "tokenizer.json").unlink()
    missing = DetectorSettings(family="nli", model="a/b").missing()
    assert missing.found == f"{folder} without tokenizer.json"
    assert "save_pretrained" in missing.fix
    own = DetectorSettings(family="nli", path=str(folder / "nothing")).missing()
    assert own.key == "judge.path"
    assert own.expected == "a folder with config.json, model.safetensors and tokenizer.json"


def test_hhem_takes_the_tokenizer_of_its_base_model(cache, with_torch):
    folder = write_files(published(cache, MODELS["hhem"], COMMIT), like="t5")
    (folder / "tokenizer.json").unlink()
    missing = DetectorSettings(family="hhem").missing()
    assert missing.fix == "hf download google/flan-t5-base tokenizer.json"
    base = write_tokenizer(published(cache, "google/flan-t5-base", OTHER), like="t5")
    settings = DetectorSettings(family="hhem")
    assert settings.missing() is None
    assert settings.tokenizer == sha(base)
    own = write_tokenizer(cache.parent / "own", like="bert")
    assert DetectorSettings(family="hhem", tokenizer_path=str(own.parent)).tokenizer == sha(own)


def test_a_file_of_another_hash_is_refused(tmp_path, with_torch):
    folder = write_files(tmp_path / "model")
    missing = DetectorSettings(path=str(folder), weights="d" * 64).missing()
    assert missing.key == "judge.weights"
    assert missing.expected == f"sha256 {'d' * 64}"
    assert sha(folder / "model.safetensors") in missing.found
    settings = DetectorSettings(path=str(folder))
    (folder / "model.safetensors").write_bytes(b"changed since")
    assert settings.missing().key == "judge.weights"


@pytest.mark.skipif(bool(find_spec("torch")), reason="torch is installed")
def test_a_missing_extra_is_named(tmp_path):
    missing = DetectorSettings(path=str(write_files(tmp_path))).missing()
    assert missing.fix == install_command("detector")


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"family": "nli"}, "name one with judge.model=owner/name"),
        ({"path": "x", "model": "a/b"}, "leave `model` and `revision` out"),
        ({"model": "../../etc"}, "owner/name"),
        ({"model": "just-a-name"}, "owner/name"),
        ({"revision": "main"}, "a branch means other weights later"),
        ({"family": "minicheck", "language": "de"}, "judge.language is for lettucedetect"),
        ({"threshold": 1}, "less than 1"),
        ({"device": "tpu"}, "should match pattern"),
        ({"family": "bert"}, "lettucedetect"),
        ({"path": 3}, "valid string"),
    ],
)
def test_wrong_sections(section, message):
    with pytest.raises(ValidationError, match=message.replace(".", r"\.").replace("(", r"\(")):
        DetectorSettings(**section)

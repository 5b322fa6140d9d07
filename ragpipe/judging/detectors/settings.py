"""The `judge` section of a detector (`judge=detector`): which trained verifier reads the passages, and how."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, field_validator, model_validator

from ragpipe.core.extras import install_command
from ragpipe.judging.any_judge import AnyJudge, MissingPart
from ragpipe.judging.detectors.model_folder import (
    ARCHITECTURE,
    COMMIT,
    FILES,
    MODEL_NAME,
    TOKENIZER,
    WEIGHTS,
    cached_commit,
    cached_folder,
    fetch_command,
    hash_once,
)
from ragpipe.schema.settings import NotInIdentity, Sha256

Family = Literal["lettucedetect", "minicheck", "hhem", "nli"]
Language = Literal["en", "de", "fr", "es", "it", "pl", "cn", "hu"]
INSTALL = install_command("detector")
MODELS: dict[str, str] = {
    "lettucedetect": "KRLabsOrg/lettucedect-base-modernbert-en-v1",
    "minicheck": "lytang/MiniCheck-Flan-T5-Large",
    "hhem": "vectara/hallucination_evaluation_model",
}
"""The published model that a family reads with where none is named."""
HHEM_TOKENIZER = "google/flan-t5-base"
"""HHEM-2.1 was trained with this model's tokenizer, and its own folder need not have one."""
_LIMITS = {"lettucedetect": 4096, "minicheck": 2048, "hhem": 2048, "nli": 512}
"""Tokens that a model reads at once: of LettuceDetect and MiniCheck as their authors set it, of an NLI model as most are built."""


class DetectorSettings(AnyJudge):
    """A trained grounding verifier, computed here by torch and transformers (extra `detector`). No code of a model runs.

    Its files are those of a published `model` in the user's cache or those of the folder `path`. Their hashes are read once and
    recorded: they are the judge's identity, together with the model's name and commit, and a finished run needs the files no more.
    `threshold` changes verdicts and no reading: readings are stored without it.
    """

    implementation: ClassVar[str] = "ragpipe.judging.detectors.detector_judge:DetectorJudge"
    session_by: ClassVar[str] = "ragpipe.engine.detector_access:detector_session"
    computes: ClassVar[bool] = True
    rules: ClassVar[str] = "detector-v1"

    kind: Annotated[Literal["detector"], NotInIdentity] = Field(
        default="detector", description="A trained grounding verifier that is computed on this machine."
    )
    family: Family = Field(
        default="lettucedetect",
        description=(
            "How the model is asked. lettucedetect: marks unsupported spans of an answer; minicheck, hhem: whether a passage "
            "supports a claim; nli: a cross-encoder with labels such as entailment and contradiction."
        ),
    )
    model: str | None = Field(
        default=None,
        description="Published model, as owner/name, whose files are in the cache. null: that of the family, or `path`.",
    )
    revision: str | None = Field(
        default=None,
        description="Commit of the published model, 40 hexadecimal digits. null: the one that the cache has, recorded.",
    )
    path: Annotated[Annotated[str, Field(min_length=1)] | None, NotInIdentity] = Field(
        default=None,
        description="Folder with config.json, model.safetensors and tokenizer.json. null: the cache, by `model`.",
    )
    tokenizer_path: Annotated[Annotated[str, Field(min_length=1)] | None, NotInIdentity] = Field(
        default=None,
        description="Folder with tokenizer.json where the model's has none. null: the model's; for hhem also google/flan-t5-base.",
    )
    weights: Sha256 | None = Field(
        default=None, description="SHA-256 of model.safetensors. null: read from the file and recorded."
    )
    tokenizer: Sha256 | None = Field(
        default=None, description="SHA-256 of tokenizer.json. null: read from the file and recorded."
    )
    architecture: Sha256 | None = Field(
        default=None, description="SHA-256 of config.json. null: read from the file and recorded."
    )
    threshold: float = Field(
        default=0.5,
        gt=0,
        lt=1,
        allow_inf_nan=False,
        description="Probability of support, between 0 and 1, that a claim, or each word of it, needs. Higher is stricter.",
    )
    max_tokens: int | None = Field(
        default=None,
        ge=16,
        le=131_072,
        description="Tokens that the model reads at once, 16 to 131,072. null: 4,096 for lettucedetect, 2,048 for minicheck and hhem, 512 for nli.",
    )
    overflow: Literal["split", "too_long"] = Field(
        default="split",
        description=(
            "What happens to passages over `max_tokens`. split: they are read in parts, and what any part supports is "
            "supported; too_long: the case is an error. Nothing is ever cut off."
        ),
    )
    language: Language = Field(
        default="en", description="Language of the template around the passages; lettucedetect only."
    )
    dtype: Literal["float32", "bfloat16", "float16"] = Field(
        default="float32", description="Precision of the model's numbers. The narrow ones are for graphics cards."
    )
    device: Annotated[Annotated[str, Field(pattern=r"^(cpu|cuda(:\d+)?|mps)$")] | None, NotInIdentity] = Field(
        default=None,
        description="Device that computes: cpu, cuda, cuda:1, mps. null: a graphics card where there is one.",
    )
    batch_tokens: Annotated[int, NotInIdentity] = Field(
        default=8192,
        ge=16,
        le=4_194_304,
        description="Tokens that are computed together, padding included, 16 to 4,194,304. It changes speed and memory.",
    )

    @model_validator(mode="before")
    @classmethod
    def _hashes(cls, data: Any) -> Any:
        return _with_hashes(data) if isinstance(data, dict) else data

    @field_validator("model")
    @classmethod
    def _published_name(cls, value: str | None) -> str | None:
        if value is not None and not MODEL_NAME.match(value):
            raise ValueError(f"the name of a published model, owner/name, such as {MODELS['lettucedetect']}")
        return value

    @field_validator("revision")
    @classmethod
    def _commit(cls, value: str | None) -> str | None:
        if value is not None and not COMMIT.match(value):
            raise ValueError("a whole commit, 40 hexadecimal digits: a branch means other weights later")
        return value

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if self.path is not None and (self.model is not None or self.revision is not None):
            raise ValueError("`path` is a folder of your own: leave `model` and `revision` out, or take `path` away")
        if self.path is None and self.published is None:
            raise ValueError(
                f"judge.family={self.family} has no model of its own: name one with judge.model=owner/name, or a folder with judge.path"
            )
        if self.language != "en" and self.family != "lettucedetect":
            raise ValueError(f"judge.language is for lettucedetect; {self.family} has no template in other languages")
        return self

    @property
    def published(self) -> str | None:
        """The published model's name, None for a folder."""
        return None if self.path is not None else self.model or MODELS.get(self.family)

    @property
    def limit(self) -> int:
        """Tokens that are read at once by these settings; a model may be built for fewer."""
        return self.max_tokens or _LIMITS[self.family]

    @property
    def label(self) -> str:
        """Short printable name: the model, or the family of a folder's, with the first digits of the weights' hash."""
        return f"{self.published or self.family}@{(self.weights or '')[:8]}"

    @property
    def title(self) -> str:
        return f"the detector {self.label}"

    def files(self) -> dict[str, Path | None]:
        """Where each file of `FILES` is expected; None where its folder is not there."""
        section = {name: getattr(self, name) for name in type(self).model_fields}
        return _files(section)

    def missing(self) -> MissingPart | None:
        """The first thing without which the detector cannot run here; None when all is there. Imports nothing."""
        if not all(find_spec(package) for package in ("torch", "transformers")):
            return MissingPart(
                "judge.kind", "detector, without torch or transformers", "the extra `detector`, installed", INSTALL
            )
        for name, path in self.files().items():
            if path is None or not path.is_file():
                return self._missing_file(name, path)
            expected, actual = getattr(self, name), hash_once(path)
            if expected != actual:
                return MissingPart(
                    f"judge.{name}",
                    f"sha256 {actual} of {path}",
                    f"sha256 {expected}",
                    f"give the file of that hash, or leave judge.{name} out: it is another judge then",
                )
        return None

    def _missing_file(self, name: str, path: Path | None) -> MissingPart:
        file = FILES[name]
        model = self.published
        if name == "tokenizer" and self.family == "hhem" and self.tokenizer_path is None and path is None:
            fix = fetch_command(HHEM_TOKENIZER, None, TOKENIZER)
            return MissingPart("judge.tokenizer_path", f"no {file}", f"that of {HHEM_TOKENIZER} in the cache", fix)
        place = f"{path.parent} without {file}" if path is not None else "no such folder"
        if model is None:
            return MissingPart("judge.path", place, f"a folder with {ARCHITECTURE}, {WEIGHTS} and {TOKENIZER}", _SAVE)
        if path is None:
            commit = self.revision
            return MissingPart(
                "judge.model",
                f"{model} is not in the cache",
                "its files, downloaded before the run",
                fetch_command(model, commit),
            )
        return MissingPart("judge.model", place, f"a model with {file}", f"{_SAVE}; then judge.path=that folder")

    def identity_of_judge(self) -> dict[str, Any]:
        """What a verdict depends on besides the question: part of every question's key."""
        return {"rules": self.rules, **self.identity(), "model": self.published}

    def identity_of_reading(self) -> dict[str, Any]:
        """What the model's numbers depend on besides the texts: files and form, neither their name nor the threshold."""
        names = ("family", "weights", "tokenizer", "architecture", "overflow", "language", "dtype")
        return {"rules": self.rules, "limit": self.limit, **{name: getattr(self, name) for name in names}}


_SAVE = "load the model and its tokenizer with transformers and write both with save_pretrained(FOLDER, max_shard_size='100GB')"


def _with_hashes(data: dict[str, Any]) -> dict[str, Any]:
    """The section with commit and hashes filled in, where the files are there. What is missing is said by `missing`."""
    model = _published(data)
    if model is not None and not data.get("revision") and (commit := cached_commit(model)):
        data = {**data, "revision": commit}
    absent = [name for name in FILES if not data.get(name)]
    if not absent:
        return data
    files = _files(data)
    hashes = {name: digest for name in absent if (path := files[name]) is not None and (digest := hash_once(path))}
    return {**data, **hashes}


def _published(data: Mapping[str, Any]) -> str | None:
    if data.get("path"):
        return None
    model = data.get("model") or MODELS.get(str(data.get("family") or "lettucedetect"))
    return model if isinstance(model, str) else None


def _files(data: Mapping[str, Any]) -> dict[str, Path | None]:
    """Where the files of a section stand, by the setting that holds their hash."""
    path, model, revision = data.get("path"), _published(data), data.get("revision")
    folder = Path(path) if isinstance(path, str) else None
    if folder is None and model and isinstance(revision, str):
        folder = cached_folder(model, revision)
    files = {name: folder / file if folder else None for name, file in FILES.items()}
    tokenizer = _tokenizer_folder(data, folder)
    return {**files, "tokenizer": tokenizer / TOKENIZER if tokenizer else None}


def _tokenizer_folder(data: Mapping[str, Any], folder: Path | None) -> Path | None:
    path = data.get("tokenizer_path")
    if isinstance(path, str) and path:
        return Path(path)
    if data.get("family") != "hhem" or (folder and (folder / TOKENIZER).is_file()):
        return folder
    commit = cached_commit(HHEM_TOKENIZER)
    return cached_folder(HHEM_TOKENIZER, commit) if commit else None

"""The `judge` section of a detector (`judge=detector`): which trained verifier reads the passages, and where its files are."""

from __future__ import annotations

from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from ragpipe.core.digest import sha256, sha256_file
from ragpipe.core.settings import NotInIdentity, Sha256
from ragpipe.extras.models import INSTALL
from ragpipe.judge.question import AnyJudge, MissingPart

MODELS = {"lettucedetect": "KRLabsOrg/lettucedect-base-modernbert-en-v1"}
"""The published model that a family reads with where none is named."""
LANGUAGE = "en"
"""Of lettucedetect's template around the passages."""
FILES = ("config.json", "model.safetensors", "tokenizer.json")


class DetectorSettings(AnyJudge):
    """A trained grounding verifier, computed here by lettucedetect or transformers (extra `models`). No code of a model runs.

    Its files are those of a published `model` in the cache of the Hugging Face tools, or those of the folder `path`. Their hash is read
    once and recorded: it is the judge's identity, together with the model's name, and a finished run needs the files no more.
    `threshold` changes verdicts and no reading: readings are stored without it.
    """

    implementation: ClassVar[str] = "ragpipe.extras.models.detector_judge:DetectorJudge"
    session_by: ClassVar[str] = "ragpipe.extras.models.detector_judge:detector_session"
    computes: ClassVar[bool] = True
    rules: ClassVar[str] = "detector-v2"

    kind: Annotated[Literal["detector"], NotInIdentity] = Field(
        default="detector", description="A trained grounding verifier that is computed on this machine."
    )
    family: Literal["lettucedetect", "nli"] = Field(
        default="lettucedetect",
        description="lettucedetect marks unsupported words of an answer; nli finds entailment, claim by claim.",
    )
    model: Annotated[str, Field(pattern=r"^[A-Za-z0-9][\w.\-]{0,95}/[A-Za-z0-9][\w.\-]{0,95}$")] | None = Field(
        default=None, description="Published model, as owner/name, in the cache. null: that of the family, or `path`."
    )
    path: Annotated[Annotated[str, Field(min_length=1)] | None, NotInIdentity] = Field(
        default=None, description="Folder with config.json, model.safetensors and tokenizer.json. null: the cache, by `model`."
    )
    files: Sha256 | None = Field(
        default=None, description="SHA-256 over the hashes of the model's files. null: read from the files and recorded."
    )
    threshold: float = Field(
        default=0.5, gt=0, lt=1, allow_inf_nan=False, description="Probability of support that a claim, or each word, needs."
    )

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if self.path is not None and self.model is not None:
            raise ValueError("`path` is a folder of your own: leave `model` out, or take `path` away")
        if self.path is None and self.published is None:
            raise ValueError(
                f"judge.family={self.family} needs a model: name one with judge.model=owner/name, or a folder with judge.path"
            )
        object.__setattr__(self, "files", self.files or self._hash())
        return self

    @property
    def published(self) -> str | None:
        """The published model's name, None for a folder."""
        return None if self.path is not None else self.model or MODELS.get(self.family)

    @property
    def folder(self) -> Path | None:
        """Where the model's files are; None where the cache of the Hugging Face tools has none. Nothing is downloaded."""
        if self.path is not None:
            return Path(self.path)
        from huggingface_hub import try_to_load_from_cache

        found = try_to_load_from_cache(self.published or "", FILES[0])
        return Path(found).parent if isinstance(found, str) else None

    @property
    def label(self) -> str:
        """Short printable name: the model, or the family of a folder's, with the first digits of the files' hash."""
        return f"{self.published or self.family}@{(self.files or '')[:8]}"

    @property
    def title(self) -> str:
        return f"the detector {self.label}"

    def missing(self) -> MissingPart | None:
        """The first thing without which the detector cannot run here; None when all is there. Imports nothing."""
        if not all(map(find_spec, ("lettucedetect", "torch", "transformers"))):
            found = "detector, without lettucedetect, torch or transformers"
            return MissingPart("judge.kind", found, "the extra `models`, installed", INSTALL)
        if self.folder is None:
            found, fix = f"{self.published} is not in the cache", f"hf download {self.published}"
            return MissingPart("judge.model", found, "its files, downloaded", fix)
        if absent := [name for name in FILES if not (self.folder / name).is_file()]:
            fix = "load the model and its tokenizer with transformers, and write both with save_pretrained(FOLDER)"
            found = f"{self.folder} without {absent[0]}"
            return MissingPart("judge.path", found, f"a folder with {', '.join(FILES)}", fix)
        if (actual := self._hash()) != self.files:
            fix = "give the files of that hash, or leave judge.files out: it is another judge then"
            return MissingPart("judge.files", f"{actual}, of {self.folder}", f"{self.files}", fix)
        return None

    def identity_of_judge(self) -> dict[str, Any]:
        """What a verdict depends on besides the question: part of every question's key."""
        return {"rules": self.rules, **self.identity(), "model": self.published}

    def identity_of_reading(self) -> dict[str, Any]:
        """What the model's numbers depend on besides the texts: files and form, neither their name nor the threshold."""
        return {"rules": self.rules, "family": self.family, "files": self.files, "language": LANGUAGE}

    def _hash(self) -> str | None:
        """One hash of all files; None where one is missing."""
        paths = [self.folder / name for name in FILES] if self.folder is not None else []
        if not paths or not all(path.is_file() for path in paths):
            return None
        return sha256([_file_hash(path, path.stat().st_size, path.stat().st_mtime_ns) for path in paths])


@lru_cache(maxsize=64)
def _file_hash(path: Path, size: int, changed: int) -> str:
    return sha256_file(path)  # weights are large: read once per process

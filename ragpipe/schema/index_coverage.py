"""How far the documents are in the index of the system under test: what `index.json` of a run holds."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from ragpipe.schema.format_version import FORMAT

Count = Annotated[int, Field(ge=0)]
Rate = Annotated[float, Field(ge=0, le=1)]


class _Frozen(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Coverage(_Frozen):
    """Documents and chunks. `documents_without_chunks` gave no chunk at all; of `documents_not_embedded` every chunk was
    skipped. Neither can be retrieved. Rates are null where there is nothing to count."""

    documents: Count
    documents_without_chunks: Count
    documents_not_embedded: Count
    no_chunks_rate: Rate | None
    chunks_attempted: Count
    chunks_embedded: Count
    chunks_skipped: Count
    skipped_rate: Rate | None
    skipped_because: dict[str, Count]


class ChunkTokens(_Frozen):
    """Tokens of the chunks whose tokens are known, skipped ones among them. `p95` by linear interpolation."""

    n: Count
    min: Count
    mean: Annotated[float, Field(ge=0)]
    p95: Annotated[float, Field(ge=0)]
    max: Count


class MissingGold(_Frozen):
    """A document that some sample's labels name and that cannot be retrieved; `samples` are the first of them."""

    document: str
    why: Literal["not_in_manifest", "no_chunks", "not_embedded"]
    n_samples: Count
    samples: list[str]


class IndexCoverage(_Frozen):
    """The whole of `index.json`. `gold_documents` is how many documents the samples' labels name (`relevant_docs`, and
    the paths of `anchors`); `gold_missing` lists the first of the `gold_missing_count` that cannot be retrieved.
    `samples_missing_gold` has every sample with such documents, and how many it has."""

    format: Annotated[int, Field(ge=FORMAT, le=FORMAT)] = FORMAT
    chunkers: list[str]
    embeddings: list[str]
    index_versions: list[str]
    overall: Coverage
    by_doc_type: dict[str, Coverage]
    tokens: ChunkTokens | None
    without_chunks: list[str]
    gold_documents: Count
    gold_missing_count: Count
    gold_missing: list[MissingGold]
    samples_missing_gold: dict[str, Annotated[int, Field(ge=1)]]

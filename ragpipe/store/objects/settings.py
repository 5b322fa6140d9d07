"""The section `storage`: how files are read from and written to object stores. It holds no key."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from pydantic import Field, field_validator

from ragpipe.schema.settings import Settings


class StorageSettings(Settings):
    """Where object stores are reached and where the copies of their files are. Credentials come from the environment and the
    providers' own files, as every other program takes them."""

    endpoint: Annotated[str, Field(pattern=r"^https?://[^\s/@?#]+/?$")] | None = Field(
        default=None,
        description=(
            "Address of a server that speaks the protocol of S3 (`s3://`) or of Google's storage (`gs://`): http://host:port. null: "
            "the provider's own, or that of the environment (AWS_ENDPOINT_URL)."
        ),
    )
    region: Annotated[str, Field(min_length=1)] | None = Field(
        default=None, description="Region of the buckets of `s3://`. null: that of the environment, or of the bucket."
    )
    anonymous: bool = Field(
        default=False, description="Whether `s3://` and `gs://` are asked without credentials, as public buckets allow."
    )
    tries: int = Field(
        default=5,
        ge=1,
        le=100,
        description="How often in a row a request may fail before the file is given up, 1 to 100. A new byte that arrives starts anew.",
    )
    cache: Annotated[str, Field(min_length=1)] | None = Field(
        default=None,
        description="Folder of the copies of files that were fetched, on a local disk. null: `.fetched` in `output_dir`.",
    )

    @field_validator("cache")
    @classmethod
    def _on_a_local_disk(cls, cache: str | None) -> str | None:
        if cache is not None and "://" in cache:
            raise ValueError("a folder of this machine")
        return cache


@dataclass(frozen=True)
class Storage:
    """How object stores are reached in one start, and the folder of the copies of their files."""

    settings: StorageSettings = field(default_factory=StorageSettings)
    cache: Path = Path("outputs/.fetched")

    @classmethod
    def of(cls, settings: StorageSettings, output_dir: str) -> Storage:
        """The storage of a configuration."""
        return cls(settings, Path(settings.cache) if settings.cache else Path(output_dir) / ".fetched")


DEFAULT_STORAGE = Storage()
"""The storage of callers that read files of this machine alone."""

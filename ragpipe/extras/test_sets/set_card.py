"""What the card of a synthesized set says: how it was made, from which files, with which settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ragpipe.core.digest import sha256_file
from ragpipe.core.resources import data_path
from ragpipe.documents.markdown import Document
from ragpipe.extras.test_sets.question_templates import Templates
from ragpipe.extras.test_sets.synthesize_settings import SynthesizeSettings


def set_card(
    settings: SynthesizeSettings, documents: list[Document], templates: Templates, by_model: Mapping[str, Any] | None
) -> dict[str, Any]:
    """The card without its counts. `by_model` is what a language model did; None where none was asked."""
    folder = data_path(settings.documents)
    sources = [{"path": item.rel_path, "sha256": sha256_file(folder / item.rel_path)} for item in documents]
    files = [{"path": name, "sha256": sha256_file(path)} for name, path in templates.paths.items()]
    means = "templates" if by_model is None else "templates and a language model"
    return {
        "made": f"Made from {len(documents):,} documents by {means} (task=synthesize).",
        "seed": settings.seed,
        "settings": settings.model_dump(mode="json", exclude={"dir", "seed"}),
        **({} if by_model is None else {"model": dict(by_model)}),
        "templates": files,
        "sources": sources,
    }

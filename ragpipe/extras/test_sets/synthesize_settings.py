"""The `synthesize` section: from which documents and templates a test set is made, and how many cases of each kind."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from ragpipe.extras.test_sets.question_templates import Kind
from ragpipe.schema.settings import Settings

UP_TO = 10
"""How many cases of a kind are made where no number is given: fewer where the documents give fewer."""
Count = Annotated[int, Field(ge=0, le=100_000)] | None


class KindCounts(Settings):
    """How many cases of each kind. A number is exact: where the documents give fewer, nothing is written."""

    complete: Count = Field(default=None, description="Answered by one fact or paragraph. null: up to 10, as for all.")
    quote_only: Count = Field(default=None, description="About a source that may only be quoted.")
    citation_pair: Count = Field(default=None, description="Two documents compared by a key that both have.")
    conflict: Count = Field(default=None, description="About a note that contradicts an older one.")
    partial_list: Count = Field(default=None, description="More items asked for than a list has.")
    partial_dates: Count = Field(default=None, description="Periods beyond the last one that is known.")
    partial_entities: Count = Field(default=None, description="Two things, of which one is in no document.")
    policy: Count = Field(default=None, description="Attempts to break a policy.")
    no_context: Count = Field(default=None, description="Questions that no document answers.")
    edge: Count = Field(default=None, description="Ambiguous, with a false premise, or mixed with a policy attempt.")
    free: Annotated[int, Field(ge=0, le=100_000)] = Field(
        default=0, description="Questions that a language model asks about sections; needs `model: true`."
    )

    def by_kind(self) -> dict[Kind, int | None]:
        """The counts of the kinds that templates make, in their order."""
        return {kind: getattr(self, kind) for kind in type(self).model_fields if kind != "free"}  # type: ignore[misc]


class SynthesizeSettings(Settings):
    """What a test set is made from."""

    documents: str = Field(
        min_length=1, description="Folder of Markdown documents; `package:handbook` is the shipped one."
    )
    dir: str = Field(min_length=1, description="Folder of the test set. It is made; nothing in it is overwritten.")
    counts: KindCounts = Field(default_factory=KindCounts, description="Number of cases by kind.")
    templates: list[str] = Field(
        default_factory=list,
        description="Template files: names of shipped ones (complete.v1) and paths of your own. Default: all shipped ones.",
    )
    organisation: Annotated[str, Field(min_length=1)] | None = Field(
        default=None,
        description="Name of the organisation that the documents are about, for policy attempts. null: none is named.",
    )
    seed: int = Field(default=0, ge=0, le=2**32 - 1, description="Seed of the draw, 0 to 4,294,967,295.")
    model: bool = Field(
        default=False, description="Whether a language model (`judge`) words questions anew and asks free ones."
    )
    rephrase: float = Field(
        default=1.0, ge=0, le=1, description="With a model: share of the template questions that it words anew, 0 to 1."
    )

    @model_validator(mode="after")
    def _free_needs_a_model(self) -> SynthesizeSettings:
        if self.counts.free and not self.model:
            raise ValueError("counts.free needs a language model: synthesize.model=true judge=llm judge.model=...")
        return self

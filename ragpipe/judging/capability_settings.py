"""`judge.capabilities`: what a model takes, where the user knows better than the table (`capabilities.py`)."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from ragpipe.schema.settings import NotInIdentity, Settings


class CapabilitySettings(Settings):
    """What the model takes. null: as the table knows it, else it is assumed and learned from the provider's refusal.

    A parameter that is not taken is not sent, so it is in the identity of replies; the form of a request is not. The window
    decides which questions are asked, so it is in the identity of a run, like `max_tokens`.
    """

    temperature: bool | None = Field(
        default=None, description="Whether the model takes `temperature`. false: it is not sent. null: as known."
    )
    top_p: bool | None = Field(default=None, description="Whether the model takes `top_p`. null: as known.")
    seed: bool | None = Field(default=None, description="Whether the model takes `seed`. null: as known.")
    reasoning_effort: bool | None = Field(
        default=None,
        description="Whether the model has a thinking mode and takes `reasoning_effort`. null: as known.",
    )
    system_role: Annotated[bool | None, NotInIdentity] = Field(
        default=None,
        description="Whether the model takes a system message. false: its text begins the user's message. null: as known.",
    )
    json_schema: Annotated[bool | None, NotInIdentity] = Field(
        default=None, description="Whether the model can be bound to a JSON schema. null: as known."
    )
    json_object: Annotated[bool | None, NotInIdentity] = Field(
        default=None, description="Whether the model can be bound to JSON without a schema. null: as known."
    )
    max_completion_tokens: Annotated[bool | None, NotInIdentity] = Field(
        default=None,
        description="Whether `max_tokens` is sent under the name max_completion_tokens. null: as known.",
    )
    context_tokens: Annotated[int, Field(ge=256)] | None = Field(
        default=None,
        description=(
            "The model's context window in tokens, prompt and reply together, 256 or more. A question that does not fit is "
            "an error (`too_long`) and is not sent. null: the provider decides."
        ),
    )

"""The settings of limits that only a judge has: tokens per minute, and the deadlines of a case and of a start."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from ragpipe.schema.settings import NotInIdentity, Settings

_Seconds = Annotated[float, Field(gt=0, le=8_640_000, allow_inf_nan=False)]


class LimitSettings(Settings):
    """Part of the `judge` section. None of it changes the text of a reply, so none is in an identity."""

    tpm: Annotated[Annotated[float, Field(gt=0, allow_inf_nan=False)] | None, NotInIdentity] = Field(
        default=None, description="Tokens per minute, above 0. null: no limit of ours."
    )
    tokens_counted: Annotated[Literal["max_tokens", "used"] | None, NotInIdentity] = Field(
        default=None,
        description=(
            "What the server's limit of tokens counts for a reply. max_tokens: its longest length, when the request arrives; "
            "used: its real length. null: as is known of the provider, else max_tokens."
        ),
    )
    case_deadline_s: Annotated[_Seconds | None, NotInIdentity] = Field(
        default=None,
        description=(
            "Seconds that the questions of one case may take together, above 0 to 8,640,000, without waits for the server's "
            "limits. null: no limit."
        ),
    )
    run_deadline_s: Annotated[_Seconds | None, NotInIdentity] = Field(
        default=None,
        description=(
            "Seconds after the beginning of a start from which no question is asked any more, above 0 to 8,640,000; the "
            "run then ends with what it has, and can be resumed. null: no limit."
        ),
    )

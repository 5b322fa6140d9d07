"""Whether a reply comes from the requested model: a gateway may answer with another, which is another judge."""

from __future__ import annotations

import re
from typing import Literal

from ragpipe.judging.capabilities import LOCAL, is_pinned
from ragpipe.judging.settings import JudgeSettings
from ragpipe.schema.call import Call

Kind = Literal["asked", "dated", "other", "unknown"]
OTHER, DATED = "other_model", "dated_model"
"""Flags of a reply in `judge_inputs.parquet`."""
_FLAGS: dict[Kind, tuple[str, ...]] = {"other": (OTHER,), "dated": (DATED,)}

_DATE = re.compile(r"[-@:_](20\d\d-?\d\d-?\d\d|\d\d-\d\d|\d{3,4}|sha256[:-]?[0-9a-f]+|[0-9a-f]{7,64})(-preview)?")


class ServedModel:
    """Which models may answer for one judge, by its settings."""

    def __init__(self, settings: JudgeSettings):
        self._provider = settings.provider.lower()
        name = self._bare(settings.name)
        self._asked = {name, name.partition("/")[2] or name}
        self._aliases = {self._bare(alias) for alias in settings.served_as}
        public = settings.api_base is None and settings.provider not in LOCAL
        option = settings.served_model
        self.refuses = option == "refuse" if option else public and is_pinned(settings.name)
        """Whether a reply of another model ends the run, and counts as missing in the store."""

    def kind(self, model: str | None) -> Kind:
        """`asked`: the requested model or one of `served_as`. `dated`: a dated version of a requested name without a date.
        `unknown`: the reply names no model. `other`: any other."""
        if not model:
            return "unknown"
        name = self._bare(model)
        if name in self._asked or name in self._aliases:
            return "asked"
        for asked in self._asked:
            if name.startswith(asked) and not is_pinned(asked) and _DATE.fullmatch(name[len(asked) :]):
                return "dated"
        return "other"

    def flags(self, call: Call) -> tuple[str, ...]:
        """The flags of a reply."""
        if call.status != "ok" or not call.attempts:
            return ()
        kind = self.kind(call.model)
        return _FLAGS.get(kind, ())

    def refuse(self, call: Call) -> bool:
        """Whether a stored reply may not be used for this judge."""
        return self.refuses and OTHER in self.flags(call)

    def _bare(self, name: str) -> str:
        """A name without the prefixes and suffixes that providers add."""
        bare = name.strip().lower().removeprefix("models/").removeprefix(f"{self._provider}/")
        return bare.removesuffix(":latest")

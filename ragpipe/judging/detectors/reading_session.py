"""Readings behind the call store: what was read once is not computed again, in no iteration, metric or run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from ragpipe.core.errors import DataError, JudgeError, Problem
from ragpipe.judging.detectors.reading import Reading, Texts, reading_payload
from ragpipe.judging.detectors.settings import DetectorSettings
from ragpipe.judging.detectors.token_batches import OutOfMemory
from ragpipe.judging.session import JudgeSession


class AsksReadings(Protocol):
    """What gives the reading of some texts."""

    async def __call__(self, texts: Texts) -> Reading: ...


class StoredReadings:
    """Readings through a session, whose transport computes those that are not stored."""

    def __init__(self, session: JudgeSession):
        self._session = session

    async def __call__(self, texts: Texts) -> Reading:
        """One reading. Raises JudgeError where none is stored and none is computed."""
        question = self._session.question(reading_payload(texts), Reading, 1, "a reading of the detector")
        call = await self._session.reply(question)
        if call.status != "ok":
            raise JudgeError(call.status, call.message or "no reading", text=call.text)  # type: ignore[arg-type]
        return Reading.model_validate_json(call.text or "")


def reading_texts(settings: DetectorSettings) -> Callable[[Sequence[Texts]], list[str]]:
    """What computes the texts of readings; the model is loaded for the first one. Raises DataError where it cannot be."""
    reader: Callable[[Sequence[Texts]], list[Reading]] | None = None

    def compute(asked: Sequence[Texts]) -> list[str]:
        nonlocal reader
        if reader is None:
            from ragpipe.judging.detectors.torch_models import open_reader

            reader = open_reader(settings)
        try:
            return [reading.model_dump_json(exclude_defaults=True) for reading in reader(asked)]
        except OutOfMemory as error:
            fix = "judge.device=cpu, or a smaller judge.max_tokens: longer passages are then read in parts"
            problem = Problem(
                "the configuration", "judge.max_tokens", f"{settings.limit:,}", "inputs for which there is room", fix
            )
            raise DataError("the device has no memory for one input of the detector", [problem]) from error

    return compute

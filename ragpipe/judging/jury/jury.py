"""The members of a jury at work: each with a session of its own."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

from ragpipe.judging.jury.settings import CascadeSettings, JurySettings
from ragpipe.judging.session import JudgeSession
from ragpipe.schema.sample import CaseKey
from ragpipe.schema.score import Score, ScoreSpec


@dataclass(frozen=True)
class Jury:
    """The settings of a jury, and the session of each member by name."""

    settings: JurySettings
    sessions: Mapping[str, JudgeSession]

    def members_of(self, metric: str) -> dict[str, JudgeSession]:
        """The sessions of the members that judge a metric."""
        return {name: self.sessions[name] for name in self.settings.members_of(metric)}


def is_unsure(cascade: CascadeSettings, spec: ScoreSpec, score: Score) -> bool:
    """Whether the first member of a cascade is unsure of a score: it lies near the chosen value, or is an error. A score without a
    range is never near anything."""
    if score.status == "error":
        return True
    if score.value is None or spec.low is None or spec.high is None:
        return False
    share = (score.value - spec.low) / (spec.high - spec.low)
    return abs(share - cascade.near) <= cascade.within + 1e-9


def is_drawn(cascade: CascadeSettings, case: CaseKey, metric: str) -> bool:
    """Whether both members judge a case of which the first is sure: drawn by what names the case, so that every start draws the
    same."""
    text = f"{case.sample_id}\n{case.method}\n{case.repeat}\n{metric}".encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.sha256(text).digest()[:8]) < cascade.random_share * 2**64

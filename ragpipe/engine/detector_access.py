"""The session of a run whose judge is a detector: its readings are computed in batches and kept in the call store."""

from __future__ import annotations

from ragpipe.embedding.local_embedder import LocalTransport
from ragpipe.judging.detectors.detector_judge import DetectorJudge
from ragpipe.judging.detectors.reading_session import StoredReadings, reading_texts
from ragpipe.judging.detectors.settings import DetectorSettings
from ragpipe.judging.session import JudgeSession
from ragpipe.store.calls.reply_store import ReplyStore

READINGS_TOGETHER = 64  # readings of one round: batches are full, and the end of a run that is stopped is not far


def detector_session(judge: DetectorSettings, replies: ReplyStore, embedder: JudgeSession | None) -> JudgeSession:
    """The session of a detector. Its answers are computed from readings; a reading that is not stored is computed in a batch
    with those that other cases wait for: no provider is asked, so no transport forbids it. The model is loaded for the first one."""
    transport = LocalTransport(reading_texts(judge), together=READINGS_TOGETHER, drops_waiting=True)
    reader = JudgeSession(identity=judge.identity_of_reading(), label=judge.label, transport=transport, store=replies)
    return JudgeSession(
        identity=judge.identity_of_judge(),
        label=judge.label,
        embedded=DetectorJudge(judge, StoredReadings(reader)),
        embedder=embedder,
        reader=reader,
    )

"""From the configuration to the judge: its identity, its name, and the session that metrics ask through."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

from ragpipe.config.settings import RunConfig
from ragpipe.core.errors import ConfigError
from ragpipe.embedding.local_embedder import LocalTransport, vectors_by
from ragpipe.embedding.settings import ApiEmbedder, MiniLM, NoEmbedder, SentenceTransformers
from ragpipe.embedding.token_encoder import EncoderSettings
from ragpipe.judging.heuristic.settings import HeuristicSettings
from ragpipe.judging.served_model import ServedModel
from ragpipe.judging.session import JudgeSession
from ragpipe.judging.session_protocols import Transport
from ragpipe.judging.settings import JudgeSettings
from ragpipe.judging.transports.stored_transport import StoredTransport
from ragpipe.schema.call import Call
from ragpipe.schema.corpus import Corpus
from ragpipe.scoring.gates.calibration import uncalibrated_gates
from ragpipe.store.calls.accepted_replies import AcceptedReplies
from ragpipe.store.calls.call_store import CallStore, StoredCalls
from ragpipe.store.calls.recorded_replies import FallbackStore, RecordedReplies

Opened = CallStore | StoredCalls | AcceptedReplies | RecordedReplies | FallbackStore
TEXTS_TOGETHER = 64
"""Cases open at once with an embedded judge and an embedder: their texts are computed together."""


def store_path(config: RunConfig) -> Path:
    """The file of the call store: `store.path`, by default `<output_dir>/.store`, and `calls.sqlite` in it."""
    return Path(config.store.path or Path(config.output_dir) / ".store") / "calls.sqlite"


def judge_description(config: RunConfig) -> dict[str, Any]:
    """What reports say of the judge: its label, and its calibration against human labels; `calibrated` null: none, which
    holds for every judge whatever its kind."""
    return {"label": config.judge.label, "calibrated": None}


def scoring_warnings(config: RunConfig) -> list[str]:
    """What to know of the scoring section before anything is asked."""
    metrics = config.metrics.values()
    specs = [spec for metric in metrics for spec in metric.scores()]
    asked = {name for metric in metrics if metric.prompts() for name in metric.score_names}
    return [*config.scoring.warnings(specs), *uncalibrated_gates(config.scoring, specs, asked)]


def case_window(config: RunConfig) -> int:
    """Cases open at once: twice the concurrency, so that a slot is taken as soon as it is free."""
    wide = 4 if isinstance(config.embedder, NoEmbedder) else TEXTS_TOGETHER
    return max(8, 2 * config.judge.concurrency) if isinstance(config.judge, JudgeSettings) else wide


@asynccontextmanager
async def open_judge(
    config: RunConfig,
    run_id: str,
    *,
    known: RecordedReplies | None = None,
    warn: Callable[[str], None] = lambda _: None,
    embeds: bool = True,
) -> AsyncIterator[JudgeSession]:
    """The session of one run: to the judge, with the call store between. `known` replies of a finished run come first.
    Without `embeds` only vectors that are stored are given."""
    judge = config.judge
    refuse_other_addresses(config)
    if isinstance(judge, HeuristicSettings) and not _keeps(config):
        yield _computing(judge, None)
        return
    store = CallStore(store_path(config), run_id=run_id, say=warn)
    for notice in store.notices:
        warn(notice)
    checked = checked_store(config, store)
    replies = FallbackStore(known, checked) if known is not None else checked
    embedder = _embedder(config, replies, _to_embedder(config, run_id, warn) if embeds else StoredTransport())
    if isinstance(judge, HeuristicSettings):
        session = _computing(judge, embedder)
    else:
        session = _live(config, run_id, replies, embedder, warn)
    session.encoder_factory = partial(_encoder_session, replies, None if embeds else StoredTransport())
    try:
        yield session
    finally:
        await session.close()
        if store.damaged:
            warn(f"{store.damaged:,} stored replies were damaged: they counted as not there, and were asked again")
        replies.close()


def checked_store(config: RunConfig, store: CallStore | StoredCalls) -> CallStore | StoredCalls | AcceptedReplies:
    """The store, of which replies of another model count as not there where the judge or the embedder refuses them."""
    judge, embedder = served_model(config.judge), served_model(config.embedder)
    if not any(one and one.refuses for one in (judge, embedder)):
        return store

    def refused(call: Call) -> bool:
        asked = embedder if call.output_mode == "vector" else judge
        return asked is not None and asked.refuse(call)

    return AcceptedReplies(store, refused)


def served_model(settings: Any) -> ServedModel | None:
    """What these settings say of the models that answer; None for what no provider answers."""
    return ServedModel(settings) if isinstance(settings, JudgeSettings) else None


def refuse_other_addresses(config: RunConfig) -> None:
    """Raises ConfigError when an environment variable would lead the judge or the embedder elsewhere."""
    if config.transport.kind != "live":
        return
    from ragpipe.judging.clients.base_urls import conflicting_base_url

    asked = {"judge": config.judge, "embedder": config.embedder}
    found = [conflicting_base_url(s, name) for name, s in asked.items() if isinstance(s, JudgeSettings)]
    if problems := [problem for problem in found if problem]:
        raise ConfigError("a model would be asked at an address that the configuration does not name", problems)


def _computing(judge: HeuristicSettings, embedder: JudgeSession | None) -> JudgeSession:
    """The session to the embedded judge: nothing that it says is stored."""
    from ragpipe.judging.heuristic.heuristic_judge import HeuristicJudge

    return JudgeSession(
        identity=judge.identity_of_judge(), label=judge.label, embedded=HeuristicJudge(judge), embedder=embedder
    )


def _live(
    config: RunConfig, run_id: str, replies: Opened, embedder: JudgeSession | None, warn: Callable[[str], None]
) -> JudgeSession:
    """The session to a language model."""
    judge = config.judge
    assert isinstance(judge, JudgeSettings)
    transport: Transport
    if config.transport.kind == "stored":
        transport = StoredTransport()
    else:
        from ragpipe.judging.transports.live_transport import LiveTransport

        transport = LiveTransport(judge, run_id=run_id, tell=warn)
    return JudgeSession(
        identity=judge.identity_of_judge(),
        label=judge.label,
        transport=transport,
        retry_errors=config.retry_errors,
        store=replies,
        embedder=embedder,
        served=served_model(judge),
    )


def _embedder(config: RunConfig, replies: Opened, transport: Transport) -> JudgeSession | None:
    """The session to what makes vectors, over the same replies as the judge's; None without an embedder."""
    settings = config.embedder
    if isinstance(settings, NoEmbedder):
        return None
    return JudgeSession(
        identity=settings.identity_of_embedder(),
        label=settings.label,
        transport=transport,
        store=replies,
        retry_errors=config.retry_errors,
        prefix=settings.prefix,
    )


def _keeps(config: RunConfig) -> bool:
    """Whether a run by an embedded judge has anything to keep: vectors, or pairs compared token by token."""
    return not isinstance(config.embedder, NoEmbedder) or any(m.encoder_settings for m in config.metrics.values())


def _encoder_session(
    replies: Opened, transport: Transport | None, settings: EncoderSettings, corpus: Corpus | None
) -> JudgeSession:
    """The session to what compares the tokens of two texts; `transport` None: it is computed here."""
    if transport is None:
        from ragpipe.embedding.token_matching import PairScores

        transport = LocalTransport(PairScores(settings, corpus))
    return JudgeSession(
        identity=settings.identity_of_embedder(), label=settings.label, transport=transport, store=replies
    )


def _to_embedder(config: RunConfig, run_id: str, warn: Callable[[str], None]) -> Transport:
    """The way to the configured embedder. Models are loaded and libraries imported by the first text."""
    settings = config.embedder
    if isinstance(settings, ApiEmbedder) and config.transport.kind == "live":
        from ragpipe.embedding.api_embedder import ApiTransport

        return ApiTransport(settings, run_id=run_id, tell=warn)
    if isinstance(settings, SentenceTransformers):
        from ragpipe.embedding.sentence_transformers_embedder import SentenceTransformersVectors

        return LocalTransport(vectors_by(SentenceTransformersVectors(settings)))
    if isinstance(settings, MiniLM):
        from ragpipe.embedding.numpy_minilm import MiniLMVectors

        return LocalTransport(vectors_by(MiniLMVectors(settings)))
    return StoredTransport()


@asynccontextmanager
async def open_replay(config: RunConfig, replies: Opened, *, fix: str = "") -> AsyncIterator[JudgeSession]:
    """A session behind which stands nobody: a question without a stored reply is answered with `missing_reply`, or ends
    the run with a DataError when `fix` says what to do about it."""
    judge = config.judge
    session = JudgeSession(
        identity=judge.identity_of_judge(),
        label=judge.label,
        transport=StoredTransport(fix),
        store=replies,
        embedder=_embedder(config, replies, StoredTransport(fix)),
        served=served_model(judge),
    )
    session.encoder_factory = partial(_encoder_session, replies, StoredTransport(fix))
    try:
        yield session
    finally:
        await session.close()
        replies.close()

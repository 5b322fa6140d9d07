"""From the configuration to the judge: its identity, its name, and the door that metrics ask through."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

from ragpipe.config import RunConfig
from ragpipe.embedding.encoder import EncoderSettings
from ragpipe.embedding.local import LocalTransport, vectors_by
from ragpipe.embedding.settings import ApiEmbedder, MiniLM, NoEmbedder, SentenceTransformers
from ragpipe.errors import ConfigError, Problem
from ragpipe.judging.door import Door, Transport
from ragpipe.judging.evidence.settings import EvidenceSettings
from ragpipe.judging.served import Served
from ragpipe.judging.settings import JudgeSettings
from ragpipe.judging.transports.stored import StoredTransport
from ragpipe.schema.call import Call
from ragpipe.schema.corpus import Corpus
from ragpipe.scoring.calibration import uncalibrated_gates
from ragpipe.store.calls import CallStore, StoredCalls
from ragpipe.store.checked import Checked
from ragpipe.store.replies import Layered, RunReplies

Opened = CallStore | StoredCalls | Checked | RunReplies | Layered
TEXTS_TOGETHER = 64
"""Cases open at once with an embedded judge and an embedder: their texts are computed together."""


def store_path(config: RunConfig) -> Path:
    """The file of the call store: `store.path`, by default `<output_dir>/.store`, and `calls.sqlite` in it."""
    return Path(config.store.path or Path(config.output_dir) / ".store") / "calls.sqlite"


def judge_line(config: RunConfig) -> dict[str, Any]:
    """What reports say of the judge: its label, and its calibration against human labels; `calibrated` null: none, which
    holds for every judge whatever its kind."""
    return {"label": config.judge.label, "calibrated": None}


def scoring_warnings(config: RunConfig) -> list[str]:
    """What to know of the scoring section before anything is asked."""
    metrics = config.metrics.values()
    specs = [spec for metric in metrics for spec in metric.scores()]
    asked = {name for metric in metrics if metric.prompts() for name in metric.score_names}
    return [*config.scoring.warnings(specs), *uncalibrated_gates(config.scoring, specs, asked)]


def window(config: RunConfig) -> int:
    """Cases open at once: twice the concurrency, so that a slot is taken as soon as it is free."""
    wide = 4 if isinstance(config.embedder, NoEmbedder) else TEXTS_TOGETHER
    return max(8, 2 * config.judge.concurrency) if isinstance(config.judge, JudgeSettings) else wide


@asynccontextmanager
async def asking(
    config: RunConfig, run_id: str, *, known: RunReplies | None = None, warn: Callable[[str], None] = lambda _: None,
    embeds: bool = True,
) -> AsyncIterator[Door]:  # fmt: skip
    """The door of one run: to the judge, with the call store between. `known` replies of a finished run come first.
    Without `embeds` only vectors that are stored are given."""
    judge = config.judge
    refuse_other_addresses(config)
    if isinstance(judge, EvidenceSettings) and not _keeps(config):
        yield _computing(judge, None)
        return
    store = CallStore(store_path(config), run_id=run_id, say=warn)
    for notice in store.notices:
        warn(notice)
    checked = checked_store(config, store)
    replies = Layered(known, checked) if known is not None else checked
    embedder = _embedder(config, replies, _to_embedder(config, run_id, warn) if embeds else StoredTransport())
    if isinstance(judge, EvidenceSettings):
        door = _computing(judge, embedder)
    else:
        door = _live(config, run_id, replies, embedder, warn)
    door.matching = partial(_matcher, replies, None if embeds else StoredTransport())
    try:
        yield door
    finally:
        await door.close()
        if store.damaged:
            warn(f"{store.damaged:,} stored replies were damaged: they counted as not there, and were asked again")
        replies.close()


def checked_store(config: RunConfig, store: CallStore | StoredCalls) -> CallStore | StoredCalls | Checked:
    """The store, of which replies of another model count as not there where the judge or the embedder refuses them."""
    judge, embedder = served_of(config.judge), served_of(config.embedder)
    if not any(one and one.refuses for one in (judge, embedder)):
        return store

    def refused(call: Call) -> bool:
        asked = embedder if call.output_mode == "vector" else judge
        return asked is not None and asked.refuse(call)

    return Checked(store, refused)


def served_of(settings: Any) -> Served | None:
    """What these settings say of the models that answer; None for what no provider answers."""
    return Served(settings) if isinstance(settings, JudgeSettings) else None


def refuse_other_addresses(config: RunConfig) -> None:
    """Raises ConfigError when an environment variable would lead the judge or the embedder elsewhere."""
    if config.transport.kind != "live":
        return
    from ragpipe.judging.clients.addresses import other_address

    asked = {"judge": config.judge, "embedder": config.embedder}
    found = [other_address(s, name) for name, s in asked.items() if isinstance(s, JudgeSettings)]
    if problems := [problem for problem in found if problem]:
        raise ConfigError("a model would be asked at an address that the configuration does not name", problems)


def _computing(judge: EvidenceSettings, embedder: Door | None) -> Door:
    """The door to the embedded judge: nothing that it says is stored. Raises ConfigError when its files are not here."""
    from ragpipe.judging.evidence.judge import Evidence

    if mend := judge.missing():
        raise ConfigError("the judge cannot answer here", [Problem(
            "judge", "judge.kind", f"{judge.kind}, without its files", "a judge that is installed", mend,
        )])  # fmt: skip
    return Door(identity=judge.identity_of_judge(), label=judge.label, embedded=Evidence(judge), embedder=embedder)


def _live(config: RunConfig, run_id: str, replies: Opened, embedder: Door | None, warn: Callable[[str], None]) -> Door:
    """The door to a language model."""
    judge = config.judge
    assert isinstance(judge, JudgeSettings)
    transport: Transport
    if config.transport.kind == "stored":
        transport = StoredTransport()
    else:
        from ragpipe.judging.transports.live import LiveTransport

        transport = LiveTransport(judge, run_id=run_id, tell=warn)
    return Door(
        identity=judge.identity_of_judge(), label=judge.label, transport=transport, retry_errors=config.retry_errors,
        store=replies, embedder=embedder, served=served_of(judge),
    )  # fmt: skip


def _embedder(config: RunConfig, replies: Opened, transport: Transport) -> Door | None:
    """The door to what makes vectors, over the same replies as the judge's; None without an embedder."""
    settings = config.embedder
    if isinstance(settings, NoEmbedder):
        return None
    return Door(
        identity=settings.identity_of_embedder(), label=settings.label, transport=transport, store=replies,
        retry_errors=config.retry_errors, prefix=settings.prefix,
    )  # fmt: skip


def _keeps(config: RunConfig) -> bool:
    """Whether a run by an embedded judge has anything to keep: vectors, or pairs compared token by token."""
    return not isinstance(config.embedder, NoEmbedder) or any(m.encoder_settings for m in config.metrics.values())


def _matcher(replies: Opened, transport: Transport | None, settings: EncoderSettings, corpus: Corpus | None) -> Door:
    """The door to what compares the tokens of two texts; `transport` None: it is computed here."""
    if transport is None:
        from ragpipe.embedding.bert_score import PairScores

        transport = LocalTransport(PairScores(settings, corpus))
    return Door(identity=settings.identity_of_embedder(), label=settings.label, transport=transport, store=replies)


def _to_embedder(config: RunConfig, run_id: str, warn: Callable[[str], None]) -> Transport:
    """The way to the configured embedder. Models are loaded and libraries imported by the first text."""
    settings = config.embedder
    if isinstance(settings, ApiEmbedder) and config.transport.kind == "live":
        from ragpipe.embedding.api import ApiTransport

        return ApiTransport(settings, run_id=run_id, tell=warn)
    if isinstance(settings, SentenceTransformers):
        from ragpipe.embedding.sentence_transformers import SentenceTransformersVectors

        return LocalTransport(vectors_by(SentenceTransformersVectors(settings)))
    if isinstance(settings, MiniLM):
        from ragpipe.embedding.minilm import MiniLMVectors

        return LocalTransport(vectors_by(MiniLMVectors(settings)))
    return StoredTransport()


@asynccontextmanager
async def replaying(config: RunConfig, replies: Opened, *, mend: str = "") -> AsyncIterator[Door]:
    """A door behind which stands nobody: a question without a stored reply is answered with `missing_reply`, or ends
    the run with a DataError when `mend` says what to do about it."""
    judge = config.judge
    door = Door(
        identity=judge.identity_of_judge(), label=judge.label, transport=StoredTransport(mend), store=replies,
        embedder=_embedder(config, replies, StoredTransport(mend)), served=served_of(judge),
    )  # fmt: skip
    door.matching = partial(_matcher, replies, StoredTransport(mend))
    try:
        yield door
    finally:
        await door.close()
        replies.close()

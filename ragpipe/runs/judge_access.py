"""From the configuration to the judge: the session that metrics ask through, and what reports say of the judge."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

from ragpipe.core import registry
from ragpipe.core.call import Call
from ragpipe.core.errors import ConfigError
from ragpipe.core.resources import data_path
from ragpipe.core.sample import Corpus
from ragpipe.judge.budget import Budget
from ragpipe.judge.embedder import LocalTransport, NoEmbedder, vectors_by
from ragpipe.judge.jury import JurySettings
from ragpipe.judge.provider_state import ServedModel
from ragpipe.judge.question import AnyJudge, Transport
from ragpipe.judge.session import JudgeSession, StoredTransport
from ragpipe.judge.settings import JudgeSettings
from ragpipe.runs.budget import open_budget
from ragpipe.runs.settings import RunConfig
from ragpipe.store.call_database import StorePlace, call_database
from ragpipe.store.call_store import AcceptedReplies, CallStore, ReplyStore, StoredCalls
from ragpipe.store.files import make_folders
from ragpipe.store.recorded_replies import FallbackStore, RecordedReplies, read_recorded_file


def store_place(config: RunConfig) -> StorePlace:
    """Where the call store is: the database of `store.url`, or `calls.sqlite` in `store.path`, by default `<output_dir>/.store`."""
    return config.store.place(config.output_dir)


def check_call_store(config: RunConfig) -> None:
    """Raises FormatMismatch for a call store that the run could not use."""
    call_database(store_place(config)).check()


def store_folder(config: RunConfig) -> Path:
    """The folder of what stands beside the call store, on this machine: drift files, budgets, what is under way."""
    return config.store.folder(config.output_dir)


def make_named_store(config: RunConfig) -> None:
    """Make the folder of `store.path`, where the run will store something: one that cannot be made is noticed before the plan.
    Raises OutputError."""
    if config.store.path is not None and (config.judge.keeps_replies or stores_vectors(config)):
        make_folders(store_folder(config))


def member_configs(config: RunConfig) -> dict[str, RunConfig]:
    """For each member of the jury the configuration of a run that it judges alone; that of the run itself, without a name, where
    one judge judges."""
    if not isinstance(config.judge, JurySettings):
        return {"": config}
    jury = config.judge
    return {
        name: config.model_copy(
            update={
                "judge": member,
                "metrics": {key: metric for key, metric in config.metrics.items() if name in jury.members_of(key)},
            }
        )
        for name, member in jury.members.items()
    }


def _as_jury(sessions: Mapping[str, JudgeSession]) -> JudgeSession:
    """The session of a jury: that of its first member, with the others as its colleagues. One judge alone stays as it is."""
    first = next(iter(sessions.values()))
    first.members = sessions if "" not in sessions else {}
    return first


@asynccontextmanager
async def open_judge(
    config: RunConfig,
    run_id: str,
    *,
    known: RecordedReplies | None = None,
    warn: Callable[[str], None] = lambda _: None,
    embeds: bool = True,
) -> AsyncIterator[JudgeSession]:
    """The session of one run, with its judge behind the call store. `known` are replies of a finished run, which come before
    those of the store; without `embeds` only stored vectors are given. Raises ConfigError when an environment variable would
    lead a call to another address."""
    refuse_other_addresses(config)
    if not config.judge.keeps_replies and not stores_vectors(config):
        yield _in_process_session(config.judge, None, None)
        return
    recorded = recorded_replies(config)  # before the store is opened: it may be refused
    # whoever asks has looked into the store before, or works for a process that has
    store = CallStore(store_place(config), run_id=run_id, say=warn)
    for notice in store.notices:
        warn(notice)

    def replies_of(member: RunConfig) -> ReplyStore:
        replies = usable_replies(member, store, recorded)
        return replies if known is None else FallbackStore(known, replies)

    try:
        with open_budget(config, store.place, run_id) as budget:
            session = _session_of_all(config, run_id, replies_of, budget, warn, embeds=embeds)
            try:
                yield session
            finally:
                await session.close()
    finally:
        if store.damaged:
            warn(f"{store.damaged:,} stored replies were damaged: they counted as missing, and were asked again")
        replies_of(config).close()


def _session_of_all(
    config: RunConfig,
    run_id: str,
    replies_of: Callable[[RunConfig], ReplyStore],
    budget: Budget | None,
    warn: Callable[[str], None],
    *,
    embeds: bool,
) -> JudgeSession:
    """The session of the judge, or of the members of a jury, which share one embedder. `budget` is for new calls."""
    sessions: dict[str, JudgeSession] = {}
    embedder: JudgeSession | None = None
    for name, member in member_configs(config).items():
        replies = replies_of(member)
        if not sessions:
            transport = _embedder_transport(config, run_id, budget, warn) if embeds else StoredTransport()
            embedder = _embedder_session(member, replies, transport)
        if isinstance(member.judge, JudgeSettings):
            asking = member.transport.open(member.judge, store_folder(config), run_id=run_id, tell=warn, budget=budget)
            session = JudgeSession(
                identity=member.judge.identity_of_judge(),
                label=member.judge.label,
                transport=asking,
                retry_errors=member.retry_errors,
                store=replies,
                embedder=embedder,
                served=served_model(member.judge),
                shuffle_seed=member.judge.shuffle_seed,
            )
        else:
            session = _in_process_session(member.judge, replies, embedder)
        session.budget = budget
        session.encoder_factory = partial(_encoder_session, replies, None if embeds else StoredTransport())
        sessions[name] = session
    return _as_jury(sessions)


def recorded_replies(config: RunConfig) -> RecordedReplies | None:
    """The replies of `store.recorded`, None without one. Raises DataError for a file that cannot be used."""
    return None if config.store.recorded is None else read_recorded_file(data_path(config.store.recorded))


def usable_replies(config: RunConfig, store: CallStore | StoredCalls, recorded: RecordedReplies | None) -> ReplyStore:
    """The recorded replies, then those of the call store, where replies of another model count as missing if the judge or the
    embedder refuses such replies."""
    judge, embedder = served_model(config.judge), served_model(config.embedder)

    def refused(call: Call) -> bool:
        model = embedder if call.output_mode == "vector" else judge
        return model is not None and model.refuse(call)

    refuses = any(model and model.refuses for model in (judge, embedder))
    accepted = AcceptedReplies(store, refused) if refuses else store
    return accepted if recorded is None else FallbackStore(recorded, accepted)


def served_model(settings: Any) -> ServedModel | None:
    """Which models may answer, by these settings; None where no provider is asked."""
    return ServedModel(settings) if isinstance(settings, JudgeSettings) else None


def refuse_other_addresses(config: RunConfig) -> None:
    """Raises ConfigError when an environment variable would lead the judge or the embedder elsewhere."""
    if not config.transport.asks:
        return
    from ragpipe.judge.live_transport import conflicting_base_url

    judges = {f"jury.members.{name}" if name else "judge": its.judge for name, its in member_configs(config).items()}
    sections = {**judges, "embedder": config.embedder}
    conflicts = [conflicting_base_url(s, name) for name, s in sections.items() if isinstance(s, JudgeSettings)]
    if problems := [conflict for conflict in conflicts if conflict]:
        raise ConfigError("a model would be asked at an address that the configuration does not name", problems)


def _in_process_session(judge: AnyJudge, replies: ReplyStore | None, embedder: JudgeSession | None) -> JudgeSession:
    if judge.session_by:
        session: JudgeSession = registry.imported(judge.session_by)(judge, replies, embedder)
        return session
    return JudgeSession(identity=judge.identity_of_judge(), label=judge.label, in_process=judge.in_process(), embedder=embedder)


def _embedder_session(config: RunConfig, replies: ReplyStore, transport: Transport) -> JudgeSession | None:
    """The session of the embedder, over the same replies as the judge's; None without an embedder."""
    settings = config.embedder
    if isinstance(settings, NoEmbedder):
        return None
    return JudgeSession(
        identity=settings.identity_of_embedder(),
        label=settings.label,
        transport=transport,
        store=replies,
        retry_errors=config.retry_errors,
        prefix=getattr(settings, "prefix", ""),
    )


def stores_vectors(config: RunConfig) -> bool:
    """Whether a run by a rules judge needs a call store: for vectors, or for pairs compared token by token."""
    has_encoder = any(metric.encoder_settings for metric in config.metrics.values())
    return has_encoder or not isinstance(config.embedder, NoEmbedder)


def computes_vectors(config: RunConfig) -> bool:
    """Whether a model in this process computes vectors, or compares pairs token by token."""
    has_encoder = any(metric.encoder_settings for metric in config.metrics.values())
    return has_encoder or bool(config.embedder.implementation)


def _encoder_session(replies: ReplyStore, transport: Transport | None, settings: Any, corpus: Corpus | None) -> JudgeSession:
    """The session of the encoder that compares the tokens of two texts; without a transport it is computed here."""
    if transport is None:
        transport = LocalTransport(settings.pair_scores(corpus))
    return JudgeSession(identity=settings.identity_of_embedder(), label=settings.label, transport=transport, store=replies)


def _embedder_transport(config: RunConfig, run_id: str, budget: Budget | None, warn: Callable[[str], None]) -> Transport:
    """The transport of the configured embedder. Models are loaded and libraries imported for the first text."""
    settings = config.embedder
    if settings.transport_by and config.transport.asks:
        transport: Transport = registry.imported(settings.transport_by)(settings, run_id=run_id, tell=warn, budget=budget)
        return transport
    return LocalTransport(vectors_by(settings.encoder())) if settings.implementation else StoredTransport()


@asynccontextmanager
async def open_replay(config: RunConfig, replies: ReplyStore, *, fix: str = "") -> AsyncIterator[JudgeSession]:
    """A session that asks no judge: a question without a stored reply is answered with `missing_reply`, or ends the run with
    a DataError when `fix` says what to do about it."""
    session = _as_jury({name: _replay_session(member, replies, fix) for name, member in member_configs(config).items()})
    try:
        yield session
    finally:
        await session.close()
        replies.close()


def _replay_session(config: RunConfig, replies: ReplyStore, fix: str) -> JudgeSession:
    judge = config.judge
    session = JudgeSession(
        identity=judge.identity_of_judge(),
        label=judge.label,
        transport=StoredTransport(fix),
        store=replies,
        embedder=_embedder_session(config, replies, StoredTransport(fix)),
        served=served_model(judge),
        shuffle_seed=judge.shuffle_seed if isinstance(judge, JudgeSettings) else None,
    )
    session.encoder_factory = partial(_encoder_session, replies, StoredTransport(fix))
    session.in_process = judge.in_process()
    return session

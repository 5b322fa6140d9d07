"""`task=rejudge`: a finished run's frozen cases before another judge, with old against new at the end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from ragpipe.core.errors import ConfigError, Problem
from ragpipe.core.validation import ConfigOrigins, NoOrigins, validated
from ragpipe.engine.case_sources import RunSource
from ragpipe.engine.evaluation import Evaluation
from ragpipe.engine.finished_run import FinishedRun, open_run
from ragpipe.engine.judge_access import checked_store, open_judge, open_replay, store_path
from ragpipe.engine.run_comparison import compare_runs
from ragpipe.engine.run_identity import run_id
from ragpipe.judging.session import JudgeSession
from ragpipe.judging.settings import JudgeSettings
from ragpipe.metrics.base import Computed
from ragpipe.reports.agreement_report import (
    AGREEMENT_HEADS,
    AGREEMENT_NOTE,
    absent_lines,
    agreement_markdown,
    agreement_rows,
    question_lines,
)
from ragpipe.reports.console import Console
from ragpipe.schema.settings import Settings
from ragpipe.stages.seal_run import seal_added
from ragpipe.store.calls.call_store import StoredCalls
from ragpipe.store.calls.recorded_replies import FallbackStore
from ragpipe.store.files.write_if_changed import json_unless_same, write_unless_same
from ragpipe.store.run.folder_lock import FolderLock
from ragpipe.store.run.run_folder import RunFolder

CHANGEABLE = ("judge", "embedder", "metrics", "scoring", "report")
KEYS = ("rejudge",)


class RejudgeSettings(Settings):
    """How to ask again.

    `mode`: `replay` runs the metrics over the frozen cases and asks what has no reply yet; `resend` sends the stored
    questions byte for byte, whatever the metrics would do with the answers; `stored` replays without a network, over
    the replies of the run and of the call store alone. `prompts`: the templates that travelled with the run, or those of
    now (`current`).
    """

    mode: Literal["replay", "resend", "stored"] = Field(
        default="replay",
        description=(
            "replay: the metrics ask again. resend: the stored questions are sent again byte for byte. stored: no "
            "network, stored replies only."
        ),
    )
    prompts: Literal["run", "current"] = Field(
        default="run", description="Which templates are used: those of the run, or the current ones."
    )


@dataclass(frozen=True)
class Rejudge:
    """A finished run, its new judge, and how to ask."""

    finished: FinishedRun
    settings: RejudgeSettings

    @property
    def plugins(self) -> list[str]:
        return self.finished.plugins

    @property
    def log_level(self) -> str:
        return self.finished.log_level

    @property
    def lock_wait_s(self) -> float | None:
        return self.finished.lock_wait_s


def validate(plain: Mapping[str, Any], origins: ConfigOrigins | None = None) -> Rejudge:
    """The run with the user's judge over its own. Raises ConfigError, DataError."""
    origins, problems = origins or NoOrigins(), list[Problem]()
    settings = validated(RejudgeSettings, plain.get("rejudge", {}), "rejudge", origins, problems)
    if settings is None:
        raise ConfigError("task=rejudge is wrong; nothing was started", problems)
    if settings.mode == "resend" and settings.prompts != "run":
        raise ConfigError(
            "task=rejudge is wrong; nothing was started",
            [
                Problem(
                    origins.location("rejudge.prompts"),
                    "rejudge.prompts",
                    settings.prompts,
                    "run: what is resent was rendered already",
                    "rejudge.mode=replay renders the templates again",
                )
            ],
        )
    allowed = ("judge",) if settings.mode == "resend" else CHANGEABLE  # resend asks no metric and scores nothing
    finished = open_run(
        plain, origins, allowed=allowed, task="rejudge", task_keys=KEYS, current_prompts=settings.prompts == "current"
    )
    if problems := [*_strangers(finished, settings, origins), *_embedded(finished, settings, origins)]:
        raise ConfigError("task=rejudge is wrong; nothing was started", problems)
    return Rejudge(finished, settings)


def _strangers(finished: FinishedRun, settings: RejudgeSettings, origins: ConfigOrigins) -> Sequence[Problem]:
    """A live call goes where the user says, never where a folder says: it may be anybody's."""
    config = finished.config
    live = settings.mode != "stored" and config.transport.kind == "live" and isinstance(config.judge, JudgeSettings)
    if not live or "judge" in finished.changed:
        return ()
    return [
        Problem(
            origins.location("judge"),
            "judge",
            f"only the run's own ({config.judge.label})",
            "a judge that you name: addresses and names of keys are never taken from a run folder",
            "judge=llm judge.model=... (and judge.api_base, judge.api_key_env), or rejudge.mode=stored to ask nobody",
        )
    ]


def _embedded(finished: FinishedRun, settings: RejudgeSettings, origins: ConfigOrigins) -> Sequence[Problem]:
    if settings.mode != "resend" or isinstance(finished.config.judge, JudgeSettings):
        return ()
    return [
        Problem(
            origins.location("judge"),
            "judge",
            finished.config.judge.label,
            "a language model: the embedded judge reads no messages",
            "judge=llm judge.model=..., or rejudge.mode=replay",
        )
    ]


def run(rejudge: Rejudge, console: Console) -> int:
    """Judge again. Returns the exit code that an evaluation by this judge would have."""
    if rejudge.settings.mode == "resend":
        from ragpipe.engine.resend_run import resend

        return resend(rejudge.finished, console)[0]
    return replay(rejudge, console)[0]


def replay(rejudge: Rejudge, console: Console) -> tuple[int, Path]:
    """The metrics over the frozen cases, with the folder. The same judge asks nothing and leads to the run's own folder."""
    finished = rejudge.finished
    identity = finished.identity()
    target = finished.sibling(run_id(identity))
    stored = rejudge.settings.mode == "stored"
    evaluation = Evaluation(
        finished.config,
        console,
        RunSource(finished.folder, finished.manifest),
        identity,
        folder=target,
        open_session=lambda: _session(rejudge, run_id(identity), console),
        made_from=finished.manifest,
        plan=not stored,
        known=finished.judge_inputs(),
        asks="store" if stored else "judge",
    )
    code = evaluation.evaluate()
    _tell(finished, target, console, asked=evaluation.asked)
    return code, target.root


def _session(rejudge: Rejudge, run: str, console: Console) -> AbstractAsyncContextManager[JudgeSession]:
    """Behind the run's own replies the configured judge, or (`stored`) the replies of the call store."""
    finished, config = rejudge.finished, rejudge.finished.config
    if rejudge.settings.mode == "stored" and isinstance(config.judge, JudgeSettings):
        return open_replay(
            config,
            FallbackStore(finished.replies(), checked_store(config, StoredCalls(store_path(config), run_id=run))),
        )
    # like the judge, an embedder is asked only where the user says so; the packaged one names no place
    own = "embedder" in finished.changed or getattr(config.embedder, "is_packaged", False)
    return open_judge(config, run, known=finished.replies(failures="permanent"), warn=console.warn, embeds=own)


def _tell(finished: FinishedRun, new: RunFolder, console: Console, *, asked: int) -> None:
    """Old judge against new: on the terminal, in `agreement.json` and on the page `agreement.md`. `asked` calls were made."""
    old, name = finished.folder, finished.run_id
    if old == new:
        calls = f"{asked:,} calls, for what had no reply" if asked else "asked nothing again"
        console.say(f"this is {name} itself, by the same judge: {calls}")
        return
    found = compare_runs(old, new)
    if found is None:
        console.say(f"{name} was never scored: there is nothing to compare with")
        return
    judged = {name: score for name, score in found["scores"].items() if name not in _computed(finished)}
    page = _kept(new, found, agreement_markdown(found | {"scores": judged}))
    found["scores"] = judged
    console.folded(
        AGREEMENT_HEADS,
        agreement_rows(found),
        title=f"old ({found['old']['judge']}) against new ({found['new']['judge']})",
    )
    console.say(AGREEMENT_NOTE)
    for line in [*question_lines(found), *absent_lines(found)]:
        console.say(line)
    console.say(f"agreement: {page}")


def _kept(new: RunFolder, found: Mapping[str, Any], markdown: str) -> Path:
    """`agreement.json` and `agreement.md`, sealed; returns the page."""
    plain, page = new.root / "agreement.json", new.root / "agreement.md"
    with FolderLock(new.root):
        json_unless_same(plain, found)
        write_unless_same(page, markdown)
        seal_added(new, [plain, page])
    return page


def _computed(finished: FinishedRun) -> set[str]:
    """The scores that no judge decides: they are the same in both runs, and would crowd the others out."""
    metrics = finished.config.metrics.values()
    return {spec.name for metric in metrics if isinstance(metric, Computed) for spec in metric.scores()}

"""Whether the judge can be asked: its keys, and one short question before a system is paid."""

from __future__ import annotations

import os
from collections.abc import Callable

from ragpipe.core.call import Payload
from ragpipe.core.errors import ConfigError, Problem, ProviderUnusable
from ragpipe.judge.answer_type import answer_schema
from ragpipe.judge.answers import Refusal
from ragpipe.judge.jury import JurySettings
from ragpipe.judge.settings import JudgeSettings
from ragpipe.metrics.base import Computed
from ragpipe.runs.event_loop import run_async
from ragpipe.runs.judge_access import member_configs, open_judge
from ragpipe.runs.settings import RunConfig

_TEXT = (
    "This is a check of the connection. Does the text between the marks decline to answer a question? Reply with a JSON object "
    'of the form {"reason": "...", "training_cutoff": false, "declines": false}.\n<<<\nThe warranty lasts two years.\n>>>'
)


def check_keys(config: RunConfig) -> None:
    """Raises ConfigError where the judge, or the embedder, of a run that asks it has its key in an environment variable that is
    not set, whether it is named or is the provider's own."""
    if problems := missing_keys(config):
        raise ConfigError("a model cannot be asked without its key; nothing was asked", problems)


def missing_keys(config: RunConfig) -> list[Problem]:
    """A problem for each model that would be asked and whose key is not in the environment."""
    if not config.transport.asks:
        return []
    if isinstance(config.judge, JurySettings):
        members = member_configs(config).items()
        return [_of_member(problem, name) for name, member in members for problem in missing_keys(member)]
    metrics = config.metrics.values()
    asked: list[JudgeSettings] = []
    if isinstance(config.judge, JudgeSettings) and _asks_judge(config):
        asked.append(config.judge)
    if isinstance(config.embedder, JudgeSettings) and any(metric.needs_embedder for metric in metrics):
        asked.append(config.embedder)
    return [_missing_key(model, name) for model in asked if (name := _unset_variable(model, config))]


def _unset_variable(model: JudgeSettings, config: RunConfig) -> str | None:
    name = config.transport.key_variable(model) if model is config.judge else model.key_variable
    if name is not None:
        return None if os.environ.get(name) else name
    from ragpipe.judge.litellm_client import unset_key_variable

    return unset_key_variable(model)


def _of_member(problem: Problem, name: str) -> Problem:
    of_judge = problem.key.startswith("judge.")
    texts = (problem.key, problem.expected, problem.fix)
    key, expected, fix = (text.replace("judge.", f"jury.members.{name}.") if of_judge else text for text in texts)
    return Problem(problem.where, key, problem.found, expected, fix)


def _asks_judge(config: RunConfig) -> bool:
    return any(not isinstance(metric, Computed) for metric in config.metrics.values())


def _missing_key(model: JudgeSettings, variable: str) -> Problem:
    return Problem(
        "the environment",
        f"{model.section}.api_key_env",
        f"the environment variable {variable} is not set",
        f"the key of {model.model} in it",
        f"export {variable}=..., or name another variable: {model.section}.api_key_env=NAME",
    )


def check_judge(config: RunConfig, run_id: str, warn: Callable[[str], None]) -> None:
    """Check the keys, and ask a language model one short question, so that a judge that cannot be asked is known before a
    system is asked for all its answers. The reply is paid for and stored like any other, and asked anew each time.

    Nothing is asked by another transport than live, whose answer may take hours, of a rules judge, with recorded or stored
    replies alone, or where no metric asks a judge. Raises ConfigError for a missing key, ProviderUnusable for a judge that does not answer,
    BudgetUsedUp.
    """
    check_keys(config)
    if isinstance(config.judge, JurySettings):
        for member in member_configs(config).values():
            check_judge(member, run_id, warn)
        return
    is_live = config.transport.kind == "live" and config.store.recorded is None
    if isinstance(config.judge, JudgeSettings) and is_live and _asks_judge(config):
        run_async(_ask_once(config, run_id, warn))


async def _ask_once(config: RunConfig, run_id: str, warn: Callable[[str], None]) -> None:
    payload = Payload(({"role": "user", "content": _TEXT},), answer_schema(Refusal))
    async with open_judge(config, run_id, warn=warn, embeds=False) as session:
        question = session.question(payload, Refusal, 1, "the first question / judge / check")
        call = await session.reply(question, again=True)
        if session.budget is not None and session.budget.used_up is not None:
            raise session.budget.used_up  # before the system is paid for answers that nobody could judge
    if call.status == "bad_request":
        raise ProviderUnusable(f"the judge refuses a short question: {call.message}", "bad_request")

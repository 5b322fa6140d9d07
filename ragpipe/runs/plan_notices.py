"""What a plan says, a line each: what it asks and costs, what is skipped, and what to know before a run is started."""

from __future__ import annotations

from collections.abc import Mapping

from ragpipe.core.errors import ConfigError, Problem
from ragpipe.core.text import on_one_line
from ragpipe.judge.budget import in_unit
from ragpipe.judge.embedder import INSTALL, NoEmbedder
from ragpipe.judge.jury import JurySettings
from ragpipe.judge.settings import JudgeSettings
from ragpipe.metrics.computed.recorded import RecordedMetric
from ragpipe.metrics.needs import SeenVerdicts, answered_extent, needed_labels
from ragpipe.report.console import Console
from ragpipe.report.styled_text import plural
from ragpipe.runs.calibration_states import scoring_warnings
from ragpipe.runs.identity import metric_sources
from ragpipe.runs.judge_access import member_configs
from ragpipe.runs.plan import Plan
from ragpipe.runs.settings import RunConfig
from ragpipe.runs.spec import RunSpec

_NAMES = 5  # of the recorded values in one line


def has_embedder(config: RunConfig) -> bool:
    """Whether the run has an embedder."""
    return not isinstance(config.embedder, NoEmbedder)


def missing_embedder_line(config: RunConfig) -> str | None:
    """A warning about metrics that need vectors in a run without an embedder; None where there are none."""
    names = [name for name, metric in config.metrics.items() if metric.needs_embedder]
    if has_embedder(config) or not names:
        return None
    return (
        f"{', '.join(names)}: skipped (no_embedder). For vectors without a key and without torch: {INSTALL}, then "
        "embedder=minilm; others: docs/judges.md"
    )


def check_call_budget(plan: Plan, config: RunConfig) -> None:
    """Raises ConfigError for a plan over `judge.max_calls`: nothing was spent yet."""
    judge = config.judge
    if isinstance(judge, JudgeSettings) and config.transport.asks and plan.new_calls > judge.max_calls:
        calls, limit = f"about {plan.new_calls:,} new calls", f"at most {judge.max_calls:,}"
        fix = f"judge.max_calls={plan.new_calls} to allow it, dataset.limit=N for fewer cases, task=plan for the parts"
        problem = Problem("the plan", "judge.max_calls", calls, limit, fix)
        raise ConfigError("the plan is larger than what is allowed; nothing was spent", [problem])


def report_gaps(plan: Plan, console: Console) -> None:
    """Print which parts of the outputs are not recorded and what is skipped for it, and which cases are too long for a question.

    A part that only some cases of a method lack is a warning; where all lack it, the metrics do not apply to the method.
    """
    for metric in plan.metrics:
        if metric.too_long:
            cases = f"{metric.too_long:,} case{'s are' if metric.too_long > 1 else ' is'}"
            console.warn(f"{metric.name}: {cases} too long for a question, first {on_one_line(metric.first_too_long, 300)}")
        if metric.unforeseen:
            console.warn(
                f"{metric.name}: the plan cannot tell what it asks about {plural(metric.unforeseen, 'case')}, first "
                f"{on_one_line(metric.first_unforeseen, 300)}"
            )
    for gap, names in plan.gaps:
        why = f" ({on_one_line(gap.why, 200)})" if gap.why else ""
        if gap.is_whole:
            console.say(f"{gap.part}: not recorded in method {gap.method}{why}: {', '.join(names)} not applicable there")
        else:
            console.warn(f"{gap}{why}: {', '.join(names)} skipped there")


def plan_line(plan: Plan, config: RunConfig) -> str:
    """New calls, their tokens and cost on one line: an estimate where questions depend on replies."""
    judge = config.judge
    details = "" if plan.sampled is None else f"; estimated from {plan.sampled:,} cases"
    if plan.shared:
        noun = "call" if isinstance(judge, JudgeSettings) else "check"
        details += f"; {plural(plan.shared, f'{noun} is', f'{noun}s are')} shared by several metrics or methods"
    if plan.embeddings:
        details += f"; apart from it up to {plan.embeddings:,} texts to {config.embedder.label}"
    if isinstance(judge, JurySettings):
        return f"plan: {plural(plan.cases, 'case')}, judged by {judge.label}{details}"
    if not isinstance(judge, JudgeSettings):
        if not plan.calls:
            return f"plan: {plural(plan.cases, 'case')}, nothing to ask a judge{details}"
        checks = plural(plan.calls, "check")
        return f"plan: {plural(plan.cases, 'case')}, about {checks} by {judge.title}, no call, no cost{details}"
    if not plan.new_calls and plan.stored:
        replies = "the one reply is" if plan.stored == 1 else f"all {plan.stored:,} replies are"
        return f"plan: {plural(plan.cases, 'case')}, no new call to {judge.label}: {replies} stored{details}"
    prices = config.transport.rates(judge)
    usd = plan.usd(prices)
    measured = sum(step.calls for step in plan.steps if step.measured)
    replies = "lengths by the form of the answers"
    if measured:
        replies = f"{measured:,} of {plan.calls:,} by this judge's earlier replies, the rest by their form"
    money = f"price unknown ({prices.reason})" if usd is None else f"about ${usd:,.2f}" if usd >= 0.01 else "less than a cent"
    return (
        f"plan: {plural(plan.cases, 'case')}, about {plural(plan.new_calls, 'new call')} to {judge.label}"
        f"{f' ({plan.stored:,} replies are stored)' if plan.stored else ''}, about {plan.tokens_in:,} prompt tokens and "
        f"{plan.tokens_out:,} completion tokens ({replies}), {money}{details}"
    )


def per_case_line(plan: Plan, full: Plan) -> str:
    """What a case costs in one iteration, stored replies or not, beside a full evaluation (`full`)."""
    return f"a case takes {_per_case(plan)}; by +mode=full_evaluation {_per_case(full)}"


def _per_case(plan: Plan) -> str:
    cases = plan.cases * plan.iterations
    tokens_in, tokens_out = sum(step.tokens_in for step in plan.steps), sum(step.tokens_out for step in plan.steps)
    return f"{plan.calls / cases:.1f} calls, {tokens_in / cases:,.0f} prompt and {tokens_out / cases:,.0f} completion tokens"


def wanted_line(labels: Mapping[str, int], wanted: Mapping[str, int]) -> str:
    """How many questions of each wanted category there are; empty where none is wanted or no question has a category."""
    counts = ", ".join(f"{category} {labels.get(category, 0):,} of {count:,}" for category, count in wanted.items())
    return f"questions wanted by category (scoring.wanted_cases): {counts}" if labels and wanted else ""


def over_budget(plan: Plan, config: RunConfig) -> str | None:
    """A warning about a plan that the judge's budget does not cover; None where it may."""
    judge = config.judge
    if not isinstance(judge, JudgeSettings) or not judge.budget.is_set:
        return None
    expected = {
        "usd": plan.usd(config.transport.rates(judge)),
        "tokens": plan.tokens_in + plan.tokens_out,
        "calls": plan.new_calls,
    }
    for part, amount in expected.items():
        limit = getattr(judge.budget, part)
        if limit is not None and amount is not None and amount > limit:
            return (
                f"judge.budget.{part}={limit:g} is less than the plan of {in_unit(part, amount)}: the run may end with a part of "
                "its cases"
            )
    return None


def unanswered_lines(config: RunConfig) -> list[str]:
    """A line for each metric that asks what the judge in this process cannot answer; none for a run with a language model."""
    if isinstance(config.judge, JurySettings):
        members = member_configs(config).items()
        return [f"member {name}: {line}" for name, member in members for line in unanswered_lines(member)]
    judge = config.judge.in_process()
    if judge is None:
        return []
    unanswered = (name for name, metric in config.metrics.items() if answered_extent(metric, judge) == "no")
    return [f"{name}: {config.judge.title} cannot answer it; needs judge=llm" for name in unanswered]


def unmet_lines(config: RunConfig, plan: Plan) -> list[str]:
    """A line for each metric that is skipped in every case, with what it needs. Parts of outputs that a method does not record are
    said by `report_gaps`, a missing embedder by `missing_embedder_line`."""
    lines = []
    said = {name for _, names in plan.gaps for name in names}
    for planned in plan.metrics:
        reasons = set(planned.skipped)
        if planned.cases or planned.name in said or not reasons or reasons <= {"no_embedder"}:
            continue
        needs = ", ".join(needed_labels(config.metrics[planned.name]))
        why = ", ".join(f"{count:,} {reason}" for reason, count in planned.skipped.most_common(3))
        lines.append(f"{planned.name}: skipped in every case ({why}); it needs {needs}: map them, or take the metric away")
    return lines


def unscored_line(config: RunConfig, plan: Plan) -> str | None:
    """The recorded values that are in no score, and the words by which they would be; None where there are none."""
    takes = [metric.take for metric in config.metrics.values() if isinstance(metric, RecordedMetric)]
    taken = {spec.source or name for take in takes for name, spec in take.items()}
    left = {
        name: count
        for name, count in plan.recorded.items()
        if name not in taken and not any(source.startswith(f"{name}.") for source in taken)
    }
    if not left:
        return None
    shown = list(left)[:_NAMES]
    counts = ", ".join(f"recorded.{name} ({left[name]:,} of {plan.cases:,} cases)" for name in shown)
    more = f" and {len(left) - len(shown):,} more" if len(left) > len(shown) else ""
    metrics = "" if takes else f"'metrics=[{','.join([*config.metrics, 'recorded'])}]' and "
    scales = ", ".join(f"{name}: {{{_scale(plan.verdicts[name])}}}" for name in shown)
    verb = "is" if len(left) == 1 else "are"
    check = "check the scales, and add higher_is_better: false where a high value is a bad one"
    return f"{counts}{more} {verb} in no score: {metrics}'metrics.recorded.take={{{scales}}}'; {check}"


def _scale(seen: SeenVerdicts) -> str:
    """The scale of a recorded value in the words of `take`, by the verdicts that were seen."""
    if seen.n and seen.is_boolean:
        return "binary: true"
    return "low: {:g}, high: {:g}".format(*seen.scale) if seen.scale else "low: null, high: null"


def start_warnings(spec: RunSpec) -> list[str]:
    """What to know before a run is started: of its scoring, its metrics and its judge."""
    calibration = spec.scoring_files.calibration_of(spec.folder)
    is_finished = spec.made_from is not None
    warnings = scoring_warnings(spec.config, spec.identity, calibration, are_answers_known=is_finished)
    for metric in spec.metrics:
        warnings += metric_sources(type(metric)).notes
    warnings += spec.config.judge.sources().notes
    if line := missing_embedder_line(spec.config):
        warnings.append(line)
    return warnings if is_finished else [*warnings, *unanswered_lines(spec.config)]

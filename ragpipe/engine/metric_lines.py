"""Metrics that a run cannot measure, said before it starts: the embedded judge cannot answer, or no case has what they need; and
recorded values that no metric takes."""

from __future__ import annotations

from ragpipe.config.settings import RunConfig
from ragpipe.engine.judge_access import member_configs
from ragpipe.judging.jury.settings import JurySettings
from ragpipe.metrics.computed.recorded import RecordedMetric
from ragpipe.profiling.label_fields import SeenVerdicts
from ragpipe.profiling.metric_needs import embedded_extent, needed_labels
from ragpipe.stages.plan_calls import Plan

_NAMES = 5  # of the recorded values in one line


def embedded_lines(config: RunConfig) -> list[str]:
    """A line for each metric that asks what the judge in this process cannot answer; none for a run with a language model."""
    if isinstance(config.judge, JurySettings):
        members = member_configs(config).items()
        return [f"member {name}: {line}" for name, member in members for line in embedded_lines(member)]
    judge = config.judge.in_process()
    if judge is None:
        return []
    unanswered = (name for name, metric in config.metrics.items() if embedded_extent(metric, judge) == "no")
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
        lines.append(
            f"{planned.name}: skipped in every case ({why}); it needs {needs}: map them, or take the metric away"
        )
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

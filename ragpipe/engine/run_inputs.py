"""The inputs of a run: frozen before anything is spent, and checked when a start goes on with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ragpipe.comparing.judge_drift import NOTE
from ragpipe.config.settings import RunConfig
from ragpipe.engine.integrity import check_unmodified
from ragpipe.engine.judge_access import member_configs
from ragpipe.engine.judge_check import check_keys
from ragpipe.engine.measured_before import EarlierRuns
from ragpipe.engine.plans.plan_summary import (
    MemberPlan,
    check_call_budget,
    check_members,
    member_plans,
    over_budget,
    plan_line,
    plan_remaining,
    reference_lines,
    report_gaps,
    resumed_lines,
)
from ragpipe.engine.run_policies import EvaluatePolicy
from ragpipe.engine.run_spec import RunSpec
from ragpipe.engine.runs.manifest import (
    COMPLETE,
    INCOMPLETE,
    JUDGED,
    JUDGING_DONE,
    all_in_state,
    checked_manifest,
    copy_prompts,
    new_manifest,
    previous_manifest,
    rewritten_prompt_warnings,
    unreadable_previous,
    write_config,
    write_manifest,
)
from ragpipe.engine.runs.run_identity import run_differences
from ragpipe.engine.sources.frozen_inputs import is_readable_table, restore_frozen, table_digests
from ragpipe.judging.jury.settings import JurySettings
from ragpipe.metrics.base import Computed
from ragpipe.metrics.computed.recorded import RecordedMetric
from ragpipe.profiling.label_fields import SeenVerdicts
from ragpipe.profiling.metric_needs import embedded_extent, needed_labels
from ragpipe.reports.console import Console
from ragpipe.stages.case_reader import CaseReader
from ragpipe.stages.collected_outputs import output_versions
from ragpipe.stages.load_dataset import block_limits
from ragpipe.stages.measured_cases import KnownMeasurements, ReplayedCases
from ragpipe.stages.plan_calls import Plan
from ragpipe.stages.resume import resumption
from ragpipe.stages.seal_run import FROZEN, remove_damaged_seal, unseal


@dataclass(frozen=True)
class RunInputs:
    """The manifest of a run whose inputs are in place. `are_new` says that nothing was judged on them yet, so that they are
    sealed at the end of this start. `known` is what need not be measured, to be closed after the judging. `planned_calls` are
    the calls that the plan expects of one iteration that is still to be judged; None where nothing was planned."""

    manifest: dict[str, Any]
    are_new: bool
    known: KnownMeasurements | None = None
    planned_calls: int | None = None


def prepare_inputs(spec: RunSpec, policy: EvaluatePolicy, console: Console) -> RunInputs:
    """Freeze the inputs of a new run, or check those of one that goes on; show the plan; write manifest, configuration and
    prompts. Nothing is spent before, and nothing is left behind when the inputs cannot be frozen. Raises ConfigError and
    DataError."""
    is_new_run = not spec.folder.manifest.exists()
    previous: Mapping[str, Any] = {}
    if is_new_run:
        previous = spec.made_from or previous_manifest(spec.folder)
        manifest = _freeze(spec, previous, console)
    else:
        manifest = checked_manifest(spec.folder, spec.run_id)
        _check_frozen(spec, manifest, console)
    if digests := spec.scoring_files.write(spec.folder, spec.config):
        manifest["scoring_files"] = digests
    earlier_runs = EarlierRuns(spec, manifest, recorded=policy.recorded_replies())
    if is_new_run and policy.asks_judge:
        manifest["iterations"] |= earlier_runs.take_over(console.say)
    states: dict[str, str] = manifest["iterations"]
    known: KnownMeasurements | None = None
    planned_calls: int | None = None
    if policy.announces_plan and not all_in_state(states, spec.iterations, JUDGING_DONE):
        if not spec.config.retry_errors:
            unfinished = [
                number for number in spec.iterations if manifest["iterations"].get(str(number)) not in JUDGING_DONE
            ]
            measured = {number: earlier_runs.measured_cases(number, console.say) for number in unfinished}
            earlier = {number: cases for number, cases in measured.items() if cases is not None}
            known = KnownMeasurements(ReplayedCases(keep_messages=spec.config.keep_messages), earlier)
        planned_calls = _announce_plan(spec, policy, states, console, known)
    if not spec.is_own_source:  # a task over a run does not change how the run was described
        write_config(spec.folder, spec.config)
    copy_prompts(spec.config, spec.folder.prompts)
    if is_new_run:
        earlier_runs.copy_journals()
        for warning in rewritten_prompt_warnings(previous, manifest):
            console.warn(warning)
    # Also where a start that collected again was killed: no iteration was judged on other outputs since.
    are_new = not {COMPLETE, INCOMPLETE} & set(states.values())
    write_manifest(spec.folder, manifest)
    if spec.made_from is None:
        spec.folder.point_latest()
    return RunInputs(manifest, are_new, known, planned_calls)


def _freeze(spec: RunSpec, previous: Mapping[str, Any], console: Console) -> dict[str, Any]:
    """Write the frozen tables of a new run. Returns its manifest, which is not written yet."""
    if previous:
        for line in run_differences(previous["identity"], spec.identity).lines(previous["run_id"]):
            console.say(line)
    if notice := unreadable_previous(spec.folder):
        console.say(notice)
    source = spec.source
    source.write(spec.folder, spec.identity)
    data: dict[str, Any] = {
        "name": source.name,
        "digest": source.digest,
        "tables": source.tables_digest(spec.identity),
        "blocks": block_limits(),
        "frozen": table_digests(spec.folder),
    }
    if versions := output_versions(spec.folder.outputs):
        data["versions"] = versions
    if source.collected_at:
        data["collected_at"] = source.collected_at
    made_from = spec.made_from or {"run_id": None, "identity": {}}
    manifest = new_manifest(spec.config, spec.identity, run_id=spec.run_id, data=data, source_run=made_from["run_id"])
    is_same_judge = made_from["identity"].get("judge_identity") == spec.identity.get("judge_identity")
    if is_same_judge and "check" in made_from.get(NOTE, {}):  # until this run has replies of its own
        manifest[NOTE] = {name: made_from[NOTE][name] for name in ("check", "baseline")}
    manifest["iterations"] = source.adopt_judged(spec.folder)
    return manifest


def _check_frozen(spec: RunSpec, manifest: dict[str, Any], console: Console) -> None:
    """Restore damaged frozen tables, forget iterations that lost theirs, refuse other changes, and collect failed outputs again
    where the user wants it."""
    retry_errors = spec.config.retry_errors
    if warning := remove_damaged_seal(spec.folder):
        console.warn(warning)
    _forget_lost_iterations(spec, manifest["iterations"], console)
    restore_frozen(spec.folder, manifest, spec.source, console.warn)
    check_unmodified(spec.folder, manifest["iterations"])
    if retry_errors:
        unseal(spec.folder, *FROZEN)
        if spec.source.retry_failures(spec.folder):
            manifest["iterations"] = {}  # judged again; what did not change costs nothing
            manifest["data"] |= {"collected_at": spec.source.collected_at, "frozen": table_digests(spec.folder)}


def _forget_lost_iterations(spec: RunSpec, states: dict[str, str], console: Console) -> None:
    """An iteration whose tables are missing or cannot be opened is judged again; so the plan counts its questions."""
    for number in [number for number, state in states.items() if state in (JUDGED, COMPLETE)]:
        folder = spec.folder.iteration(int(number))
        if lost := [path.name for path in (folder.scores, folder.judge_inputs) if not is_readable_table(path)]:
            del states[number]
            console.warn(
                f"iteration {number}: {' and '.join(lost)} missing or damaged; its cases are done again over the stored "
                "replies"
            )


def _announce_plan(
    spec: RunSpec, policy: EvaluatePolicy, states: Mapping[str, str], console: Console, known: KnownMeasurements | None
) -> int | None:
    """One line before the first paid call."""
    if all(isinstance(metric, Computed) for metric in spec.metrics):
        return None
    reader = CaseReader(spec.folder.samples, spec.folder.outputs)
    plan = plan_remaining(
        spec.config,
        reader,
        spec.run_id,
        rough=True,
        recorded=policy.recorded_replies(),
        resumed={
            number: resumption(spec.folder, reader, number, is_done=states.get(str(number)) in JUDGING_DONE)
            for number in spec.iterations
        },
        known=known,
    )
    members = member_plans(spec.config, reader, spec.run_id, rough=True, recorded=policy.recorded_replies())
    reader.close()
    for line in resumed_lines(plan):
        console.warn(line)
    report_gaps(plan, console)
    for line in unmet_lines(spec.config, plan):
        console.warn(line)
    for line in filter(None, [*reference_lines(plan), unscored_line(spec.config, plan)]):
        console.say(line)
    console.say(plan_line(plan, spec.config))
    if warning := over_budget(plan, spec.config):
        console.warn(warning)
    new_calls = _check_plan(plan, members, spec.config, console)
    unfinished = sum(states.get(str(number)) not in JUDGING_DONE for number in spec.iterations)
    return round(new_calls / max(1, unfinished))


def _check_plan(plan: Plan, members: Sequence[MemberPlan], config: RunConfig, console: Console) -> int:
    """Print what the members of a jury would be asked."""
    for member in members:
        console.say(member.line())
    check_members(members)
    check_call_budget(plan, config)
    if plan.new_calls and not members:
        check_keys(config)
    return sum(member.plan.new_calls for member in members) if members else plan.new_calls


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

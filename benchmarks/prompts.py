"""Hold versions of a prompt template, or judges, against labels by people: how well their scores agree, and what it costs.

    python benchmarks/prompts.py RUN [RUN ...] --score faithfulness --label human_hallucinated --bad-from 0.5 --threshold 0.85

Each RUN is a finished run folder with the judge's score and, beside it, the label as a score of the metric `recorded`, for
instance the jobs of `-m metrics.faithfulness.prompts.combined=v1,v2`. Only answers with both scores in all runs count. Printed
per run: AUROC, kappa and balanced accuracy against the label (the verdict is score < threshold), with 95 % intervals clustered by
question; prompt and reply tokens per case; replies that could not be read, and repairs. Then what each run changes against the
first, on the same answers (docs/prompts.md, docs/statistics.md).

Where the answers of several sets are in RUNs of one version, join their folders by commas: `v1/set_a,v1/set_b`.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

import ragpipe
from ragpipe.stats.agreement import Coefficient, cohen_kappa, difference_of_versions, estimate_kappa
from ragpipe.stats.detection import auroc, balanced_accuracy, estimate_auroc, estimate_balanced_accuracy
from ragpipe.stats.intervals import Estimate

Floats = NDArray[np.float64]
CASE = ["sample_id", "method", "repeat"]
FIRST_ITERATION = 1


@dataclass(frozen=True)
class Judged:
    """One version's scores of some answers, with what they cost.

    `scores` has a row per answer with both a score and a label: `score`, `bad` (0 or 1), indexed by the case. `costs` are per case:
    prompt and reply tokens; `asked` counts replies, `unreadable` those that could not be read, `repaired` those of them that a second
    question set right, `unscored` the answers with a label and no score.
    """

    name: str
    scores: pd.DataFrame
    tokens_in: float
    tokens_out: float
    asked: int
    unreadable: int
    repaired: int
    unscored: int


def read(paths: Sequence[Path], score: str, label: str, is_bad: Callable[[float], bool]) -> Judged:
    """The scores in some run folders of one version.

    Args:
        paths: finished run folders.
        score: name of the judge's score.
        label: name of the score with the label.
        is_bad: whether a label says that the answer is bad.
    """
    frames, uses, names = [], [], []
    for path in paths:
        run = ragpipe.load(path, iteration=FIRST_ITERATION)
        for name in (score, label):
            if name not in run.records.columns:
                known = ", ".join(run.scores["score_name"].unique())
                raise SystemExit(f"{path}: found no score {name!r}; expected one of {known}")
        metric = run.scores.loc[run.scores["score_name"] == score, "metric"].iloc[0]
        inputs = run.judge_inputs[run.judge_inputs["metric"] == metric]
        frames.append(run.records.set_index(CASE)[[score, label]].astype("float64"))
        uses.append(inputs)
        templates = inputs["template"] + "." + inputs["template_version"]
        names += (templates + " by " + inputs["judge"]).unique().tolist()
    records, replies = pd.concat(frames), pd.concat(uses)
    labelled = records[records[label].notna()]
    scored = labelled[labelled[score].notna()]
    bad = scored[label].map(lambda value: float(is_bad(value)))
    unreadable = replies["flags"].map(lambda flags: "unparsable" in flags)
    repairs = replies["turn"] == "repair"
    cases = max(1, replies.groupby(CASE).ngroups)
    return Judged(
        " + ".join(sorted(set(names))) or str(paths[0]),
        pd.DataFrame({"score": scored[score], "bad": bad}),
        replies["tokens_in"].sum() / cases,
        replies["tokens_out"].sum() / cases,
        len(replies),
        int(unreadable.sum()),
        int((repairs & ~unreadable).sum()),
        len(labelled) - len(scored),
    )


def table(judged: Sequence[Judged], threshold: float) -> list[str]:
    """The lines of the table: a row per version, then the changes against the first."""
    common = judged[0].scores.index
    for other in judged[1:]:
        common = common.intersection(other.scores.index)
    common = common.sort_values()
    frames = [one.scores.loc[common] for one in judged]
    bad = frames[0]["bad"].to_numpy()
    questions = pd.factorize(common.get_level_values("sample_id"))[0].astype(np.int64)
    lines = [
        f"{len(common)} answers to {len(set(questions))} questions, {int(bad.sum())} bad by their label; "
        f"flagged where the score is under {threshold:g}",
        "",
        "| version | AUROC | kappa | balanced accuracy | flagged | tokens per case, in / out | unreadable / repaired / replies | no score |",
        "|---|---|---|---|---|---|---|---|",
    ]
    lines += [
        _row(one, frame["score"].to_numpy(), bad, questions, threshold) for one, frame in zip(judged, frames, strict=True)
    ]
    base = frames[0]["score"].to_numpy()
    for one, frame in zip(judged[1:], frames[1:], strict=True):
        lines.append(_change(one.name, judged[0].name, base, frame["score"].to_numpy(), bad, questions, threshold))
    return lines


def _row(one: Judged, scores: Floats, bad: Floats, questions: NDArray[np.int64], threshold: float) -> str:
    flagged = (scores < threshold).astype(np.float64)
    estimates = (
        estimate_auroc(bad, -scores, questions),
        estimate_kappa(bad, flagged, questions),
        estimate_balanced_accuracy(bad, flagged, questions),
    )
    figures = " | ".join(map(_with_interval, estimates))
    return (
        f"| {one.name} | {figures} | {int(flagged.sum())} | {one.tokens_in:.0f} / {one.tokens_out:.0f} "
        f"| {one.unreadable} / {one.repaired} / {one.asked} | {one.unscored} |"
    )


def _change(
    name: str, base_name: str, base: Floats, candidate: Floats, bad: Floats, questions: NDArray[np.int64], threshold: float
) -> str:
    def of(statistic: Callable[[Floats, Floats], Coefficient], first: Floats, second: Floats) -> str:
        return _difference(difference_of_versions(statistic, bad, first, second, questions))

    verdicts = [(scores < threshold).astype(np.float64) for scores in (base, candidate)]
    changes = [of(auroc, -base, -candidate), of(cohen_kappa, *verdicts), of(balanced_accuracy, *verdicts)]
    differ = int((verdicts[0] != verdicts[1]).sum())
    return f"| {name} less {base_name} | {' | '.join(changes)} | {differ} verdicts differ | | | |"


def _with_interval(estimate: Estimate) -> str:
    if estimate.value is None:
        return f"- ({estimate.reason})"
    bounds = f" [{estimate.interval.low:.3f}, {estimate.interval.high:.3f}]" if estimate.interval else ""
    return f"{estimate.value:.3f}{bounds}"


def _difference(change: Estimate) -> str:
    if change.value is None:
        return f"- ({change.reason})"
    bounds = f" [{change.interval.low:+.3f}, {change.interval.high:+.3f}]" if change.interval else f" ({change.reason})"
    return f"{change.value:+.3f}{bounds}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", metavar="RUN", help="run folders of one version, joined by commas")
    parser.add_argument("--score", default="faithfulness", help="the judge's score")
    parser.add_argument("--label", required=True, help="the score with the label by people")
    way = parser.add_mutually_exclusive_group(required=True)
    way.add_argument("--bad-from", type=float, help="an answer is bad from this label on, where more is worse")
    way.add_argument("--good-from", type=float, help="an answer is good from this label on, where more is better")
    parser.add_argument("--threshold", type=float, default=0.85, help="an answer is flagged under this score")
    options = parser.parse_args()

    def is_bad(value: float) -> bool:
        return value >= options.bad_from if options.bad_from is not None else value < options.good_from

    judged = [read([Path(p) for p in run.split(",")], options.score, options.label, is_bad) for run in options.runs]
    print(*table(judged, options.threshold), sep="\n")


if __name__ == "__main__":
    main()

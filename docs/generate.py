"""Writes the reference pages that are made from the code: `python docs/generate.py`; `--check` only says what is stale.

docs/file-formats.md from the Arrow schemas, docs/metrics.md from the metric classes and their YAML, and in
docs/configuration.md the tables of groups and keys from the settings.
"""

from __future__ import annotations

import inspect
import json
import re
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import get_args

import pyarrow as pa
import yaml
from pydantic import BaseModel

from ragpipe.cli.tasks.schema import GROUPS, task_keys
from ragpipe.comparison.comparison import COMPARED_CASES_SCHEMA
from ragpipe.comparison.history import HISTORY
from ragpipe.core.registry import option_files
from ragpipe.core.resources import prompts_dir
from ragpipe.core.sample import Anchor, Case, Chunk, Citation, Expected, Output, Sample
from ragpipe.core.score import ScoreSpec
from ragpipe.core.version import FORMAT
from ragpipe.data.settings import RecordsOfFile
from ragpipe.data.system_settings import AnySystem, LiveSystem
from ragpipe.judge.embedder import MiniLM, PrefixedEmbedder
from ragpipe.judge.prompt_library import PromptLibrary
from ragpipe.judge.settings import JudgeSettings
from ragpipe.metrics.base import Computed, Metric
from ragpipe.metrics.from_config import load_metric
from ragpipe.metrics.needs import answered_extent, needed_labels
from ragpipe.metrics.recording_judge import questions_of
from ragpipe.report import job_comparison
from ragpipe.runs.finished_run import FinishedRunKeys
from ragpipe.runs.settings import StoreSettings, TopSettings
from ragpipe.score.conditions import Bounds, LabelledCondition
from ragpipe.score.records import records_schema
from ragpipe.store import table_rows

SENTENCES = [
    "The harbour was opened in 1803 [1].",
    "It lies north of the church [2].",
    "Many worked there.",
    "It has a slate roof.",
]
CASE = Case(
    Sample(
        id="q", question="What is known about the harbour?", references=[" ".join(SENTENCES)], answerable=False,
        expected=Expected(behavior="answer"), recency_conflict_rule="acknowledge_both",
        anchors=[Anchor(rel_path="1.md", role="newer"), Anchor(rel_path="2.md", role="older")],
    ),
    Output(
        sample_id="q", answer=" ".join(SENTENCES),
        chunks=[
            Chunk(id=f"c{i}", rank=i, rel_path=f"{i}.md", text=f"Passage {i}.", policy="quote_only" if i < 3 else "summarize")
            for i in range(1, 6)
        ],
        citations=[Citation(marker="[1]", chunk_id="c1"), Citation(marker="[2]", chunk_id="c2")],
    ),
)  # fmt: skip
HERE = Path(__file__).resolve().parent

FORMATS = """# File formats

A run folder is `outputs/<name>/<run_id>/`. Tables are Parquet (zstd) with exactly the columns below; where a cell holds an
inner structure it is JSON text. A null is written as null, never as NaN.

| file | what it is |
|---|---|
| `manifest.json` | versions, data hash, prompt hashes, the run's identity, sha256 of the frozen cases, state of each iteration, when outputs were collected and when the run ended, when a block of cases is closed |
| `config.yaml` | the composed configuration (names of environment variables, never their values) |
| `prompts/` | the templates that were used |
| `samples.parquet`, `outputs.parquet` | the frozen cases |
| `index.json` | with `system.index_manifest`: which documents are in the index ([diagnosis](diagnosis.md#what-is-in-the-index)) |
| `index.parquet` | its documents, with their chunks and tokens: what [compares two indexes](comparing.md#two-indexes) |
| `outputs.journal.jsonl` | the outputs of a live system, one line each as they arrived |
| `.system-budget.jsonl` | with `system.budget`: what each request to the system held and cost ([budgets](costs.md#a-hard-limit)); those of the judge are in `.store/budgets/<run>/holds.jsonl` |
| `iteration-N/.progress.json` | the progress of the iteration, and what its process does; a view of the journal ([below](#progressjson)) |
| `iteration-N/.wall.json` | `judging_s`: wall-clock seconds of judging, over all starts; in no seal |
| `iteration-N/journal.jsonl` | one line per finished case, until all are judged; it stays where a case was finished twice with different results, or may be asked again |
| `iteration-N/scores.parquet` | one row per case and score, as returned by the metrics |
| `iteration-N/judge_inputs.parquet` | one row per use of a reply |
| `iteration-N/records.parquet` | one wide row per case, with normalised scores and passed / failed |
| `iteration-N/metrics.json` | means, intervals, pass rates, counts, breakdowns |
| `iteration-N/cost.json` | `used` (the usage behind the results), `spent` (what this run paid), `saved`, `wasted`, and the prices ([call store](how-a-run-works.md#the-call-store)) |
| `iteration-N/low_scores.json` | what is low: bands, examples, what the low cases have in common, what a version of the system repaired and broke ([diagnosis](diagnosis.md)) |
| `final/metrics.json`, `final/cost.json` | the same over all iterations, with spread, noise and [flips](rejudging.md#iterations) |
| `gates.json` | every gate with its verdict over all iterations ([gates](gates.md)) |
| `baseline.parquet` | of a run with a gate against another: what that gate needs of the other run ([gates](gates.md#against-a-baseline)) |
| `calibration.json` | of a run whose scoring names one: how far the judge agrees with people ([gates](gates.md#what-a-critical-gate-trusts)) |
| `agreement.json`, `agreement.md`, `agreement.html` | of a re-judged run: old judge against new ([rejudging](rejudging.md)) |
| `weights.json`, `weights.md` | what the weights of the overall score decide ([weights](extras/weights.md)) |
| `labels/<draw>/` | cases drawn for people to label: `draw.json`, `draw.parquet`, `label.html`, `sheet.csv`, and after an import `labels.parquet` ([labels](calibrating.md#labels)) |
| `selftest.json`, `selftest.md`, `selftest.html` | of a [self-test](extras/checks.md#self-test): mutants, which scores caught them, and which were missed |
| `calibration/judge_audit.<run_id>.json`, `.md`, `.html` | of a [judge audit](extras/checks.md#attacks): which attacks succeeded, and which probes shifted a score |
| `calibration/spot_check.<run_id>.json`, `.md`, `.html` | of a [spot check](extras/checks.md#spot-check): how often a second judge disagrees, and on which cases |
| `verdict.json` | the [sentence](#verdictjson) that every report begins with, and its reasons as codes |
| `report.md`, `report.html` | the same for people; the page links every score to its claims and replies. `report.data/`: texts of the page where it has too many for one file |
| `.reports.json` | digests of what the reports were written from, of the reports, and of the whole run at its end: while they are the same, nothing is made again; in no seal |
| `seal.json` | digests of all files at the end of the run: `task=verify` finds changes ([reproducibility](reproducibility.md)) |

`report.formats` adds JUnit, CSV and JSON files ([reports](reports.md)).

`outputs/<name>/sweeps/<id>/` has the comparison of the runs of a [sweep](command-line.md#sweeps), `outputs/<name>/history/` the [history](monitoring.md#history) of the name,
`outputs/<name>/comparisons/<id>/` what `task=compare` wrote ([comparing](comparing.md)).
`outputs/<name>/latest` points to the newest run, `outputs/<name>/runs.md` lists all of them. `outputs/.store/calls.sqlite` has every reply under the hash of its
question, shared by all runs, `outputs/.store/drift/` what is known of the [drift](extras/checks.md#drift) of each judge. This page is generated by `python docs/generate.py`.

### The format number

{number} is the number of the format of everything on this page, of the call store and of exported calls. It is the key `format` of
`manifest.json` and every other JSON document, in the first line of every journal, in the identity of a run (so that a run of another number has
another folder) and in the [call store](how-a-run-works.md#the-call-store). Only `iteration-N/.progress.json` has none. No other
format is read or converted: a folder or a store with an older number, a newer one or none is refused by name, with the ragpipe version that made
it and what to do (exit 2). Nothing else in it is read or changed, and no judge is asked.
[Compatibility](reproducibility.md#compatibility) says when the number is raised, and what then becomes of replies that were paid.

A new run of the same name gets its own folder and uses nothing of the old one. `task=runs` lists the runs that it can read, names each of the
others in a line and ends with 0. `task=store action=prune unused=true` is refused as
long as such a folder is under `output_dir`, because the replies that it uses are unknown.
"""

PROGRESS = """
## .progress.json

How far an iteration is, for people and other programs; no run reads it back. While a process works on the iteration it writes the file at least
every two seconds, also while no case finishes; a finished case is in it within one second. While the outputs of a live system are collected, the
file of iteration 1 counts outputs in place of cases.

| key | meaning |
|---|---|
| `testSetName`, `iterationNumber`, `lastUpdated`, `statistics` | the data set, the iteration, when a case was finished last, how many are |
| `state` | what the process does: the table below |
| `journal` | with more than 500 finished cases: the file that has all of them |
| `entries` | the finished cases with their values; of more than 500 the newest 500 that 64 KB hold |

| key of `state` | meaning |
|---|---|
| `phase` | `collecting` (outputs of a live system), `judging`, `scoring`, `done` |
| `pid`, `host`, `processMark` | the process; the mark tells it from a later one with the same pid |
| `startedAt`, `updatedAt` | when this start began, and when this was written; UTC |
| `cases` | `total`, `done`, and `resumed`: how many of the done ones an earlier start had finished |
| `calls` | requests of this start, counted where they are sent: `sent` = `answered` + `failed` + `inFlight`. Retries count each time, stored replies never. `waiting` calls hold their next request back |
| `texts` | texts `embedded` by a model in the process, and `waiting` for it |
| `waitingUntil`, `waitingFor` | until when waiting calls are held back, and why: `429` (a rate limit), `rpm`, `tpm` (your own), `request limit`, `token limit`, `limit used up` (the server's headers), `overload` (the server's limit of concurrency), `no answer` (an outage), or what the last attempt met |
| `limits` | what the [limits](costs.md#how-a-provider-is-asked) of the judge's server did: requests `refused` for the rate (429) and `overloaded`; the limits in force (`requestsPerMinute`, `tokensPerMinute`), and what refusals taught (`learnedPerMinute`, `width`); null: no such limit |
| `ratePerSecond` | answered requests per second since `startedAt` |
| `tokens`, `usd` | of all answers to the judge's questions that the run has paid for, in earlier starts too; `usd` is null where a price is unknown |
| `errors`, `errorGroups` | cases with an error; how many measurements failed, by kind of error |
| `secondsLeft` | estimated; null where nothing tells yet |
| `command` | the words of this start, with `***` for what may be secret |

A process that was killed leaves the file as it was. It is stale when `phase` is not `done` and the process is gone (`pid` on `host`), or when
`updatedAt` is more than 30 s ago while it is `collecting` or `judging`, or is on another host. `ragpipe.store.progress.read_progress`
reads the state, and [`task=view`](extras/view.md) shows such a run as stalled.
"""

METRICS = """
## Claims in `details`

`details.claims` of `faithfulness` and `context_recall` has an object for each claim:

| key | meaning |
|---|---|
| `claim`, `reason` | the claim; the judge's reason |
| `supported` | whether it counts as supported |
| `verdict` | `supported`, `contradicted` or `not_supported`; absent where the template does not ask the judge to tell the last two apart |
| `evidence` | the judge's quotes, each an object `{quote, places}`: for what supports, contradicts or else decides the claim |
| `evidence_found` | of a supported and of a contradicted claim: whether one of its quotes occurs in a context |

`places` says where a quote occurs, in objects `{chunk, rank, start, end}`: id and rank of the chunk, and the characters of its own text from
`start` to before `end`, counted from 0. It is the first time in each chunk; a quote with an elision (`...`) has a place for each of its pieces. Case,
white space and typography do not count. A quote that occurs in no context has no places.

Beside the list stand `total`, `supported`, `contradicted`, the texts of `unsupported_claims` (contradicted ones too), and how many supported
and contradicted claims have no quote that occurs: `evidence_not_found` and `contradiction_not_found`, each also a flag where it is not 0. Neither
changes a value. `contradicted` and `contradiction_not_found` are there only with `verdict`.

## manifest.json

| key | meaning |
|---|---|
| `run_id`, `name`, `created_at`, `ragpipe`, `code`, `versions` | which run this is, and what made it |
| `source_run` | id of the run whose frozen cases these are; null for a run of a data set |
| `data` | name and digest of the data set, digests of the frozen tables, `remarks` on what reading the data met |
| `prompts` | sha256 of each template that was used |
| `identity` | the settings that can change a figure: two runs with the same identity are the same run |
| `iterations` | state of each iteration: judged, incomplete or complete |
| `judge_drift` | of a judge that is checked for [drift](extras/checks.md#drift): times of the first and the last reply behind the results, by alarm when the judge was last as before and when it was found to be another, and what the newest check found; absent where there is none |

## cost.json

| key | meaning |
|---|---|
| `used` | the usage behind the results, at the prices of now: a usage and the keys below; also `by_metric` and `by_judge` |
| `spent` | what this run and iteration paid, over all starts: a usage |
| `saved` | the part of `used` that other runs or iterations paid: a usage |
| `wasted` | what was paid and is not used (retries after an empty reply, passing failures, removed metrics): a usage; all null where it is not known |
| `repriced` | `usd`: by how much the run's own used replies cost more now than when they were paid |
| `prices` | by judge its model, source and `usd_per_million` tokens |
| `format`, `signature` | [format number](#the-format-number), and the signature of the run |

A usage has these keys:

| key | meaning |
|---|---|
| `calls` | different questions |
| `replies` | attempts that the provider answered, and so are billed; in `used` one per call |
| `tokens_in`, `tokens_out` | prompt and completion tokens |
| `tokens_cached`, `tokens_written` | parts of `tokens_in`: read from the provider's cache, and written to it |
| `tokens_reasoning` | part of `tokens_out` |
| `usd` | price in dollars; null when the price of one reply is unknown |
| `usd_known`, `unpriced` | price of the replies with a known price, and the number of the others |
| `without_usage` | replies that name no tokens |
| `damaged` | ledger rows that cannot be read, only where there are some; they are in no other number |

`used` has further (`uses`, `served_models`, `case_latency_ms` and `per_case` in total only, not by metric and by judge):

| key | meaning |
|---|---|
| `uses` | questions of metrics; several may use one reply |
| `calls_computed` | calls for which nothing was sent: a rules judge computed them, a budget or an outage held them back, or the store had no reply |
| `calls_failed`, `failures` | calls that gave no reply to parse, in all and by kind (`refused`, `cut_short`, `deadline` ...). A reply that came and cannot be parsed is in neither: it has the flag `unparsable` in `judge_inputs.parquet`, and what became of the case is in `errors` of the score in `metrics.json`. `unparsable` in `failures` is a reply of more than 1,000,000 characters, which is not read |
| `error_rate`, `timeout_rate`, `empty_rate` | shares of the calls that were sent, 0 to 1; `deadline` counts as timeout, `empty_reply` as empty. What a budget or an outage held back was not sent and is in `failures` alone |
| `attempts`, `retries` | HTTP attempts, and those after a call's first |
| `unpriced_reasons` | why a price is unknown, and for how many replies |
| `latency_ms`, `case_latency_ms` | number, percentiles and sum of the latencies of calls, and of cases |
| `served_models` | replies by the model that answered: `requested`, `dated` (a dated version of it), `other` by name, `unknown`; and `fingerprints` |
| `per_case` | averages per case |

`final/cost.json` has these parts for each of `iterations` and as `total`, and `iteration_digests`, the sha256 of the files it is made from.

## gates.json

| key | meaning |
|---|---|
| `format`, `signature`, `iterations` | [format number](#the-format-number), signature, and the number of iterations |
| `passed` | whether no gate blocks |
| `gates` | each gate: its definition, `value`, `values` by iteration, `interval`, counts, `coverage`, `p_value` and `p_adjusted` ([several gates](gates.md#several-gates)), `paired` (both sides of a gate against a baseline, what differs, and how many cases only one of them has: `only_base`, `only_candidate`), `corrected` (the value of the judge alone, and the number of labels), and the next three |
| `verdict` | passed, failed, inconclusive, not_enough_evidence, no_evidence, not_applicable or uncalibrated |
| `outcome` | passed, blocked (exit code 3), warned, or reported (diagnostic gates, and gates that do not apply) |
| `sentence` | the verdict in words |

## verdict.json

| key | meaning |
|---|---|
| `state` | of a run with gates `blocked`, `warned` or `passed`; `no_evidence` where no score has a value; else that of the best method against the first one (`better`, `worse`, `same`, `inconclusive`), and `measured` for one method |
| `sentence` | what the terminal, `report.html`, `report.md` and JUnit begin with |
| `reasons` | what the sentence is made of, in order: `code` and `text` |
| `trust` | what is known of the judge by human labels, and what failed, as `code` and `text`: `uncalibrated`, `calibrated`, `calibration_failed`, `judgements_failed`, `system_errors` |

The codes: the states above; `values_lost`, `judge_moved`, `states_nothing`, `coverage` and `jury` (what makes figures say little of the system), `too_few`, `no_pairs`,
`level`, `problem` (the most frequent diagnosis), `other_methods`, `slice_fell`; of a comparison also `other_conditions`, `also_worse`, `also_better`, `mode_rose`, `mode_fell`, `no_score`. In the folder of a
[comparison](comparing.md#the-page-and-the-files) `verdicts` has one for each candidate, with the `score` that decided.

## metrics.json

| key | meaning |
|---|---|
| `format`, `signature`, `iteration`, `judge`, `scoring` | the origin of the figures; `scoring.level` is the level of every interval; `judge.calibrated` true: all scores of the judge are calibrated against human labels, false: one failed, else null |
| `n_cases`, `n_samples` | cases (a question answered by a method) and questions |
| `n_failed_judgements` | pairs of case and metric where the metric failed |
| `declared` | by score its scale (`low`, `high`; null for a count), `higher_is_better`, `binary`, `diagnostic`, `threshold`, `stage` (retrieval, generation, end_to_end) and the `metric` that gives it (empty for one made of others), stated once |
| `composite_parts` | by composite, and for `overall_score`: the parts that this run has (`measured`) and lacks (`absent`) |
| `overall` | the figures over all cases |
| `by` | the same by field and group: `by.method.rerank`, `by["method*question_type"]`; only scores that apply to one of the group's cases |
| `shared` | with several methods: each score on the questions that they share, the only ones on which methods may be compared |
| `grades` | how many cases have each grade of a graded score, and each class of `answer_class`: `overall`, by method, by question type, and by both where there are several of each |
| `extremes` | by score and method the best, worst and mean case, on the `n_questions` for which all methods listed have the score |
| `warnings` | what to know before relying on the figures: a list of `kind` and `text` |
| `failure_items` | what is counted of a failure mode beside its cases: the name of its `n_items` |
| `diagnosis`, `not_applicable` | what is wrong, with advice and examples, and the rules that this run cannot decide ([diagnosis](diagnosis.md)) |
| `calibration` | by score that asked the judge: `calibrated` (true, false, null) and `why` ([gates](gates.md#what-a-critical-gate-trusts)) |
| `corrected` | by score with labels: `raw` mean of the judge and corrected `mean`, with intervals; `pass_rates` likewise ([corrected means](statistics.md#corrected-means)) |
| `gates` | each gate, decided on this iteration ([gates](gates.md)) |

`overall` and every group have `n_cases`, `n_samples`, `scores`, `operations` ([latency](systems.md#latency-errors-and-tokens)), the counts of failure
modes and of diagnoses (`n`; `n_judged`: for how many cases the rule could be decided; `n_items`: things counted in all cases). To get shares, divide `n` by
`n_cases`, `n_with_failure_mode` or `n_failure_modes`. `chunk_support` has, for each score whose quotes were looked up (`faithfulness`, `context_recall`),
its `claims` by how they are carried: `one` chunk holds all of a claim's quotes, several do (`redundant`), only several together do (`spread`), no chunk holds one
(`not_found`), the claim is `unsupported`; the `chunks`, those `used` by a supported claim, the pairs of a claim and a chunk with a quote of it (`carried`), `unused_share`
(0 to 1), `claims_per_used_chunk` (`carried` / `used`), and `by_doc_type` for chunks with a type. Each score has:

| key | meaning |
|---|---|
| `n_ok` | cases with a value |
| `mean`, `interval` | in the native scale: `low`, `high`, `method` and, under five questions, `too_few: true` ([intervals](statistics.md)); without an interval it is null, with `interval_reason` |
| `pass_rate`, `pass_interval`, `n_judged` | share of the judged cases that reached the threshold, and their number |
| `n_silent` | cases with a value whose answer states nothing |
| `n_unjudged` | cases with a value and no verdict, because another score decides it and is not known |
| `coverage` | `n_ok` / (`n_ok` + `n_error` + `n_system_error` + `n_not_recorded`); null where no judgement was due |
| `n_skipped`, `n_error`, `n_missing` | cases that were not judged, that could not be judged, that are not measured yet |
| `n_system_error`, `n_not_recorded` | skipped cases that were due: the system failed on a question to which the metric applies; the answer or the contexts are not recorded, though the same method records them in other cases |
| `skipped`, `errors` | how often each reason occurs |

`shared` has `n_questions` that every method was asked, `of` how many any was, and `scores`: per score the `n_questions` on which
every method has a value, `of` how many any has, and under `methods` the figures of each method on these only. A method that
never has the score (a closed-book method, in a retrieval score) is not compared; a score that fewer than two methods have
is left out.

`n_ok`, `mean`, `interval` and `coverage` always exist. The others have no key where they are 0, empty or never judged:
`score.get("n_error", 0)`.
"""

_KINDS = {
    "string": "text",
    "int64": "whole number",
    "double": "number",
    "bool": "true / false",
    "list<item: string>": "list of texts",
    str(table_rows.CHUNKS): f"list of objects: {', '.join(field.name for field in table_rows.CHUNK)}",
}


def formats() -> str:
    pages = [FORMATS.replace("{number}", str(FORMAT))]
    for name in ("samples", "outputs", "index", "scores", "judge_inputs"):
        pages.append(f"\n## {name}.parquet\n\n{_columns(getattr(table_rows, name.upper()))}")
    pages.append(
        "\n## records.parquet\n\nFive columns for each score; here for a score called `faithfulness`.\n\n"
        + _columns(records_schema([ScoreSpec("faithfulness")]))
    )
    pages.append(
        f"\n## comparison.parquet\n\nOf a sweep: one row per job, method and score.\n\n{_columns(job_comparison.COMPARISON_SCHEMA)}"
        "\n## comparison.parquet of task=compare\n\nOne row per comparison, shared case and score.\n\n"
        f"{_columns(COMPARED_CASES_SCHEMA)}"
    )
    pages.append(f"\n## history.parquet\n\nOne row per run and score.\n\n{_columns(HISTORY)}")
    return "".join([*pages, PROGRESS, METRICS])


def _columns(schema: pa.Schema) -> str:
    rows = [
        f"| `{f.name}` | {_KINDS.get(str(f.type), str(f.type))} | {_plain(f.metadata[b'description'].decode())} |\n"
        for f in schema
    ]
    return "| column | type | meaning |\n|---|---|---|\n" + "".join(rows)


def metrics() -> str:
    library = PromptLibrary([prompts_dir()])
    loaded: list[tuple[str, Metric]] = []
    parts = [
        "# Metrics\n\nSwitch metrics on with `metrics=[a,b]`; each is one YAML in `conf/metrics/`. Made from the code by "
        "`python docs/generate.py`.\n"
    ]
    for path in option_files("metrics").values():
        text = path.read_text(encoding="utf-8")
        for name, section in (yaml.safe_load(text) or {}).items():
            metric = load_metric(name, section, library, [])
            loaded.append((path.name, metric))
            parts.append(_metric(name, metric, section, _comments(text)))
    return "\n".join([parts[0] + glance(loaded), *parts[1:]])


def glance(metrics: Iterable[tuple[str, Metric]]) -> str:
    """One row per metric: scores, file, whether it needs a model or labels, what it reads, and the calls that it expects on one and the same
    case."""
    rows = []
    for file, metric in metrics:
        prompts = ", ".join(f"`{p.name}.{p.version}`" for p in metric.prompts().values()) or "-"
        calls = len(questions_of(metric, CASE)) if metric.skip_reason(CASE) is None else 0
        needs = needed_labels(metric)
        outputs = ", ".join(name for name in needs if _is_of_output(name)) or "-"
        labels = ", ".join(name for name in needs if not _is_of_output(name))
        rows.append(
            f"| {_scores(metric)} | `{file}` | {_needed_model(metric)} | {labels or 'no'} | {outputs} | {calls} | {prompts} |\n"
        )
    return (
        "\n## At a glance\n\n*Needs a model?* What must answer: *no* is computed; *language model, or offline* is also answered by the "
        "[rules judge](judges.md#the-rules-judge), *partly* in some cases only, such as those with a reference answer. *Needs labels?* The "
        "fields of your data, beside the question, without which a case has no score; `a or b` where one of them is enough. *Needs of "
        "the output* is what your system must return.\n\n"
        "*Calls* are those of a case with five contexts, two of them restricted, a reference answer, two citations and an "
        "answer of four sentences, at most, by the default parameters; metrics that ask the same question ask it once. "
        "What measures retrieval or contexts is skipped (`retrieves_nothing`) for a method that "
        "[retrieves nothing by design](systems.md#a-system-that-retrieves-nothing).\n\n"
        "| scores | file in conf/metrics | needs a model? | needs labels? | needs of the output | calls | prompts |\n"
        "|---|---|---|---|---|---|---|\n" + "".join(rows)
    )


def _needed_model(metric: Metric) -> str:
    """What must answer before the metric has a value, by its default parameters."""
    if metric.needs_embedder:
        return "[embedder](judges.md#embeddings)"
    if metric.encoder_settings is not None:
        return "encoder of tokens"
    if not metric.prompts():
        return "no"
    extent = answered_extent(metric)
    return {"yes": "language model, or offline", "partly": "language model; offline partly"}.get(extent, "language model")


def _is_of_output(need: str) -> bool:
    """Whether a need is a part of the output of a system, and no label of the sample."""
    root = re.split(r"[.\[ =]", need)[0]
    return root == "contexts" or root in Output.model_fields


def _metric(name: str, metric: Metric, section: dict[str, object], comments: dict[str, str]) -> str:
    asks = (
        "asks nobody"
        if isinstance(metric, Computed)
        else ", ".join(f"`{metric.prompt_folder(step)}/{step}.{version}`" for step, version in _versions(section).items())
    )
    rows = [
        f"| `{key}` | `{json.dumps(value, ensure_ascii=False)}` | {_plain(comments.get(key, ''))} |"
        for key, value in section.items()
        if key not in ("class", "prompts")
    ]
    table = "\n| parameter | default | meaning |\n|---|---|---|\n" + "\n".join(rows) + "\n" if rows else ""
    return (
        f"## {name}\n\n{inspect.getdoc(type(metric))}\n\n- class: `{section['class']}`\n- scores: {_scores(metric)}\n"
        f"- needs: {', '.join(sorted(metric.needs)) or 'nothing'}{_closed(metric)}\n- prompts: {asks}\n{table}"
    )


def _closed(metric: Metric) -> str:
    on_contexts = metric.measures_retrieval or "contexts" in metric.needs | metric.reads
    reads = f"; reads: {', '.join(sorted(metric.reads))}" if metric.reads else ""
    return f"{reads}{'; skipped where `retrieves` is false' if on_contexts else ''}"


def _versions(section: dict[str, object]) -> dict[str, str]:
    """The versions of all steps, also of those that the default parameters do not use."""
    found = section.get("prompts")
    return found if isinstance(found, dict) else {}


def _scores(metric: Metric) -> str:
    """Names and scales; the same measure at several cut-offs once."""
    found = {
        f"`{re.sub('@[0-9]+$', '@k', s.name)}`{_scale(s.low, s.high)}{'' if s.higher_is_better else ', lower is better'}": None
        for s in metric.scores()
    }
    return ", ".join(found) or "those that its parameters name"


def _scale(low: float | None, high: float | None) -> str:
    return "" if low is None or high is None else f" ({low:g} to {high:g})"


def _comments(text: str) -> dict[str, str]:
    """The comment above each parameter of a metric's YAML."""
    found, lines = dict[str, str](), list[str]()
    for line in text.splitlines():
        if line.startswith("  # "):
            lines.append(line[4:])
        elif key := re.match(r"  (\w+):", line):
            found[key[1]], lines = " ".join(lines), []
    return found


def _plain(text: str) -> str:
    return text.replace("<", "\\<").replace("|", "\\|")


GROUP_PURPOSES = {
    "dataset": "which cases, and how a file's records become cases",
    "system": "where the outputs come from",
    "judge": "who answers",
    "transport": "whether the provider is asked, or stored replies only",
    "runner": "which processes measure the cases",
    "embedder": "who turns texts into vectors",
    "metrics": "what is measured; several: see [metrics](metrics.md)",
    "scoring": "weights, thresholds, composites, gates, slices: see [scoring](scoring.md)",
    "report": "what is printed and written",
    "task": "what is done",
    "compare": "what `task=compare` compares",
    "mode": "overlays for a situation",
    "experiment": "your composition of all of these",
}


def configuration() -> str:
    """The page as it is, with its generated tables made anew."""
    page = (HERE / "configuration.md").read_text(encoding="utf-8")
    for name, table in (("groups", _groups()), ("keys", _keys())):
        pattern = rf"(<!-- generated: {name} -->\n).*?(<!-- end -->)"
        page = re.sub(pattern, lambda match, table=table: f"{match[1]}{table}{match[2]}", page, count=1, flags=re.S)
    return page


GROUP_PLACES = {
    "system": "#system-every-kind",
    "judge": "#judge-kind-llm",
    "transport": "#transport-kind-live",
    "runner": "#runner-kind-local",
    "embedder": "#embedder-every-kind-that-makes-vectors",
    "metrics": "metrics.md",
    "task": "#task-every-task-over-a-finished-run",
    "compare": "#task-compare",
    "mode": "",
    "experiment": "",
}
"""Where the keys of a group stand that has no section of its name; overlays have none."""


def _groups() -> str:
    """A row per option group, with a link to its keys and its shipped options."""
    rows = []
    for group, purpose in GROUP_PURPOSES.items():
        options = list(option_files(group))
        listed = "one per metric" if group == "metrics" else ", ".join(f"`{option}`" for option in options)
        place = GROUP_PLACES.get(group, f"#{group}")
        name = f"[`{group}`]({place})" if place else f"`+{group}`"
        rows.append(f"| {name} | {purpose} | {listed} |\n")
    return "| group | what it chooses | shipped |\n|---|---|---|\n" + "".join(rows)


COMMON = {
    AnySystem: "system: every kind",
    LiveSystem: "system: every kind that is called",
    JudgeSettings: "judge: kind `llm`",
    PrefixedEmbedder: "embedder: every kind that makes vectors",
    MiniLM: "embedder: kind `minilm`",
    RecordsOfFile: "Form of a file of the data set",
    FinishedRunKeys: "task: every task over a finished run",
    Bounds: "Bounds of a condition",
    LabelledCondition: "Tests of a condition on a field or a detail",
}
"""Settings that others share, with the title of their table: it alone has the rows."""


def _keys() -> str:
    """A table of keys per section, with the models inside it after it."""
    parts = [_key_table("Outside of any section", TopSettings)]
    for group, settings in GROUPS.items():
        if isinstance(settings, dict):
            parts += [_common_table(base) for base, title in COMMON.items() if title.startswith(f"{group}: every")]
            parts += [_key_table(f"{group}: kind `{kind}`", model) for kind, model in settings.items()]
        else:
            parts.append(_key_table(group, settings))
    parts.append(_key_table("store", StoreSettings))
    parts.append(_common_table(FinishedRunKeys))
    tasks = {task: model for task, model in task_keys().items() if model is not None}
    parts += [_key_table(f"task: `{task}`", model) for task, model in tasks.items() if model is not FinishedRunKeys]
    inner: dict[str, type[BaseModel]] = {}
    for settings in [*GROUPS.values(), *task_keys().values()]:
        for model in settings.values() if isinstance(settings, dict) else [settings]:
            for nested in _inner_models(model):
                inner.setdefault(nested.__name__, nested)
    inner = {name: model for name, model in inner.items() if model not in IN_ITS_SECTION}
    parts += [_common_table(base) for base in (RecordsOfFile, Bounds, LabelledCondition)]
    parts += [_key_table(f"`{name}`", model) for name, model in sorted(inner.items())]
    return "".join(parts)


def _common_table(base: type[BaseModel]) -> str:
    return _key_table(COMMON[base], base)


def _key_table(title: str, model: type[BaseModel]) -> str:
    """The keys of a section, without its `kind` and without those that the table of a common base has: it is named."""
    words, rows = [], list(_rows(model))
    if "kind" in model.model_fields:
        words.append(model.model_fields["kind"].description or "")
    for base in [base for base in model.__mro__ if base in COMMON and base is not model]:
        theirs = list(_rows(base))
        shared = [row for row in rows if row in theirs]
        rows = [row for row in rows if row not in theirs]
        left_out = [row.split("`")[1] for row in theirs if row not in shared]
        if shared:
            but = f" (but for {', '.join(f'`{name}`' for name in left_out)})" if left_out else ""
            words.append(f"Has the keys of *{COMMON[base]}*{but}.")
    if title.startswith("task: `") and (taken := [key for key in model.model_fields if key in TopSettings.model_fields]):
        words.append(f"Reads {', '.join(f'`{key}`' for key in taken)} of the run.")
    table = f"\n| key | type | default | meaning |\n|---|---|---|---|\n{''.join(rows)}" if rows else ""
    return f"\n### {title}\n" + (f"\n{_plain(' '.join(words))}\n" if words else "") + table


def _rows(model: type[BaseModel], prefix: str = "") -> Iterable[str]:
    """A row for each key but `kind`, which the option says; the keys of a section within it, which only it has, by their dotted
    names. A task's keys that are a run's have their row there."""
    schema = model.model_json_schema()
    schema = schema.get("$defs", {}).get(model.__name__, schema)  # a model that holds itself is among its definitions
    properties = next(form["properties"] for form in [schema, *schema.get("anyOf", [])] if "properties" in form)
    taken = TopSettings.model_fields if model in task_keys().values() else {}
    for name, field in model.model_fields.items():
        key = field.alias or name
        if key == "kind" or key in taken:
            continue
        if field.annotation in IN_ITS_SECTION:
            yield from _rows(field.annotation, f"{prefix}{key}.")
            continue
        default = "" if field.is_required() else _default(field.get_default(call_default_factory=True))
        yield f"| `{prefix}{key}` | {_type(properties[key])} | {default} | {_plain(field.description or '')} |\n"


def _in_their_section() -> set[object]:
    """The models that are the value of one key alone, and of nothing else."""
    models = [TopSettings, *(model for model in task_keys().values() if model is not None)]
    for settings in GROUPS.values():
        models += settings.values() if isinstance(settings, dict) else [settings]
    models += [nested for model in list(models) for nested in _inner_models(model)]
    values = {(model, name): field.annotation for model in models for name, field in model.model_fields.items()}
    uses = Counter(nested for annotation in values.values() for nested in _inner_models(annotation, deep=False))
    return {value for value in values.values() if uses.get(value) == 1}


def _default(value: object) -> str:
    """A default as YAML flow style; what is merged from the shipped options is named, not listed."""
    if isinstance(value, BaseModel):
        return "its own defaults"
    text = json.dumps(value, ensure_ascii=False)
    return f"`{_plain(text)}`" if len(text) <= 80 else "the shipped ones"


def _type(schema: dict[str, object]) -> str:
    """What a value is, in words."""
    forms = schema.get("anyOf") or schema.get("oneOf")
    if forms:
        return " or ".join(dict.fromkeys(_type(form) for form in forms))
    if "$ref" in schema:
        return f"`{str(schema['$ref']).rpartition('/')[2]}`"
    if "const" in schema or "enum" in schema:
        options = schema.get("enum", [schema.get("const")])
        return ", ".join(f"`{json.dumps(option)}`".replace('"', "") for option in options)
    kind = str(schema.get("type", "any value"))
    if kind == "array":
        return f"list of {_type(schema.get('items', {}))}"
    if kind == "object":
        values = schema.get("additionalProperties")
        return f"mapping to {_type(values)}" if isinstance(values, dict) else "mapping"
    words = {"string": "text", "integer": "whole number", "boolean": "true or false"}
    return words.get(kind, kind)


def _inner_models(model: object, *, deep: bool = True) -> Iterable[type[BaseModel]]:
    """The settings inside the settings, at any depth; not `deep`: those that an annotation itself names."""
    seen: dict[type[BaseModel], None] = {}
    pending = [model]
    while pending:
        annotation = pending.pop()
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            if annotation not in seen:
                seen[annotation] = None
                pending += [field.annotation for field in annotation.model_fields.values()] if deep else []
        else:
            pending += get_args(annotation)
    return [nested for nested in seen if not deep or nested is not model]


IN_ITS_SECTION = _in_their_section()

PAGES = {"file-formats.md": formats, "metrics.md": metrics, "configuration.md": configuration}


def main(check: bool) -> int:
    stale = [
        name
        for name, make in PAGES.items()
        if not (HERE / name).exists() or (HERE / name).read_text(encoding="utf-8") != make()
    ]
    for name in stale:
        print(f"docs/{name} is stale: run `python docs/generate.py`" if check else f"wrote docs/{name}")
        if not check:
            (HERE / name).write_text(PAGES[name](), encoding="utf-8")
    return int(check and bool(stale))


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv[1:]))

"""`report.junit.xml`: the gates as test cases, for the CI systems that show such files. It fails exactly where a run is blocked.

The elements are those of Jenkins' schema (https://github.com/jenkinsci/xunit-plugin, junit-10.xsd), which GitLab, GitHub and
Azure read too. Equal results give equal bytes but for the id, date and duration of the run among the properties.

A history as OpenMetrics text: a sample per run, score and figure, at the time of the run.

Format: https://prometheus.io/docs/specs/om/open_metrics_spec/. All families are gauges, so that Prometheus' own text format
reads the samples too.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from itertools import groupby, product
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as Xml

import pyarrow as pa

from ragpipe.comparison.history import FAILURE_MODE, SCORE
from ragpipe.comparison.mode_table import MODE_TABLE, mode_table
from ragpipe.core.score import warning_texts
from ragpipe.core.strict_json import InvalidJson, strict_loads
from ragpipe.core.text import UNSAFE, escape, on_one_line, printable
from ragpipe.report.comparison_summary import side_label, undecided_text
from ragpipe.report.report_data import category_rows
from ragpipe.report.styled_text import difference_text, whole
from ragpipe.score.system_usage import suite_seconds
from ragpipe.store.files import json_bytes, open_unless_same, sweep_temporaries
from ragpipe.store.run_folder import RunFolder, make_folder
from ragpipe.store.run_tables import batches, is_json, schema_of

_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # https://www.w3.org/TR/xml/#charsets


def junit_xml(
    metrics: Sequence[Mapping[str, Any]], gates: Mapping[str, Any] | None, *, run: Mapping[str, Any], verdict: str = ""
) -> str:
    """The file for a run: `metrics` are its iterations' metrics.json, `gates` its gates.json, `run` its `name` and what its manifest says of
    its id, date and duration, `verdict` the sentence of its verdict.json.

    A critical gate that did not pass is a failure whose type is the verdict (`failed`, `no_evidence`, ...); a quality gate
    that did not, or an inconclusive one that only warns, is passed, with the warning in its output; one that is diagnostic
    or not applicable is skipped, because it decides nothing. A run without gates has one test case per iteration: whether
    every case was measured.
    """
    declared = gates["gates"] if gates else ()
    cases = [_gate(gate) for gate in declared] or [_iteration(iteration) for iteration in metrics]
    return junit_document([(run["name"], [("verdict", verdict), *_facts(metrics, run)], cases)])


def junit_document(suites: Sequence[tuple[str, Sequence[tuple[str, str]], Sequence[Xml.Element]]]) -> str:
    """A file of test suites, each with its name, its properties and its test cases."""
    root = Xml.Element("testsuites", {"name": "ragpipe"})
    totals = dict.fromkeys(("tests", "failures", "errors", "time"), 0)
    for name, facts, cases in suites:
        failures, skipped = (sum(case.find(tag) is not None for case in cases) for tag in ("failure", "skipped"))
        attributes = {"tests": len(cases), "failures": failures, "skipped": skipped, "errors": 0, "time": 0}
        totals = {key: total + attributes[key] for key, total in totals.items()}
        counts = {key: str(value) for key, value in attributes.items()}
        suite = Xml.SubElement(root, "testsuite", {"name": xml_text(name), **counts})
        properties = Xml.SubElement(suite, "properties")
        for key, value in facts:
            Xml.SubElement(properties, "property", {"name": key, "value": xml_text(value)})
        suite.extend(cases)
    root.attrib.update({key: str(value) for key, value in totals.items()})
    Xml.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + Xml.tostring(root, encoding="unicode") + "\n"


def _gate(gate: Mapping[str, Any]) -> Xml.Element:
    outcome, sentence = gate["outcome"], xml_text(str(gate["sentence"]))
    case = junit_case(f"gates.{gate['tier']}", str(gate["name"]))
    if outcome == "blocked":
        Xml.SubElement(case, "failure", {"type": xml_text(gate["verdict"]), "message": sentence}).text = sentence
    elif gate["tier"] == "diagnostic" or gate["verdict"] == "not_applicable":
        Xml.SubElement(case, "skipped", {"message": sentence})
    else:
        Xml.SubElement(case, "system-out").text = f"warning: {sentence}" if outcome == "warned" else sentence
    return case


def _iteration(metrics: Mapping[str, Any]) -> Xml.Element:
    case = junit_case("run", f"iteration {metrics['iteration']} complete")
    missing = {n: s["n_missing"] for n, s in metrics["overall"]["scores"].items() if "n_missing" in s}
    if missing:
        text = xml_text("; ".join(f"{name}: {whole(n)} cases are not measured" for name, n in missing.items()))
        Xml.SubElement(case, "failure", {"type": "incomplete", "message": text}).text = text
    if texts := warning_texts(metrics):
        Xml.SubElement(case, "system-out").text = xml_text("\n".join(f"warning: {text}" for text in texts))
    return case


def junit_case(group: str, name: str) -> Xml.Element:
    """An empty test case, which has passed."""
    return Xml.Element("testcase", {"classname": xml_text(group), "name": xml_text(name), "time": "0"})


def _facts(metrics: Sequence[Mapping[str, Any]], run: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What identifies the run: the file is read without its folder."""
    facts = [(key, str(run[key])) for key in ("run_id", "created_at", "duration_s") if key in run]
    if not metrics:
        return facts
    last = metrics[-1]
    if (suite := suite_seconds(last["overall"]["operations"])) is not None:
        facts.append(("suite_s", f"{suite:.1f}"))
    counts = [("cases", whole(last["n_cases"])), ("iterations", str(len(metrics)))]
    return [*facts, ("signature", on_one_line(last["signature"], 4000)), *counts]


def xml_text(text: str) -> str:
    """The text without what XML cannot hold, and with control characters shown."""
    return _NO_XML.sub(lambda match: f"\\u{ord(match[0]):04x}", printable(text))


def comparison_junit(document: Mapping[str, Any]) -> str:
    """A test suite per candidate, a test case per headline score and per failure mode that occurs: it fails where that is worse.

    Better and same pass, with the figures in the output; an undecided score is skipped: it shows nothing, good or bad.
    """
    suites = []
    for comparison in document["comparisons"]:
        name = f"{side_label(document['base'])} -> {side_label(document['candidates'][comparison['candidate']])}"
        scores = {key: score for key, score in comparison["scores"].items() if score["headline"]}
        cases = [_score("compare", key, score) for key, score in {**scores, **comparison["operations"]}.items()]
        modes = {key: mode for key, mode in comparison["failure_modes"].items() if mode["base_mean"] or mode["candidate_mean"]}
        cases += [_score("compare.failure_mode", key, mode) for key, mode in modes.items()]
        suites.append((name, [("verdict", comparison["verdict"]["sentence"])], cases))
    return junit_document(suites)


def _score(group: str, name: str, score: Mapping[str, Any]) -> Xml.Element:
    case, text = junit_case(group, name), xml_text(f"{score['state']}: {difference_text(score)}")
    if score["state"] == "worse":
        Xml.SubElement(case, "failure", {"type": "worse", "message": text}).text = text
    elif score["state"] == "inconclusive":
        Xml.SubElement(case, "skipped", {"message": xml_text(f"{text}; {undecided_text(score)}")})
    else:
        Xml.SubElement(case, "system-out").text = text
    return case


def write_json_lines(table: Path | pa.Table, target: Path) -> None:
    """Write a table, or that of a Parquet file, as JSON Lines, row by row; left alone when nothing would change.

    Columns that hold JSON as text (chunks, details, messages ...) become objects and lists; a text there that is not
    strict JSON stays a text. Raises DataError, OutputError.
    """
    schema, rows = _rows_of(table)
    values = [_values(field) for field in schema]
    with open_unless_same(target) as file:
        for batch in rows:
            columns = [value(column.to_pylist()) for value, column in zip(values, batch.columns, strict=True)]
            for row in zip(*columns, strict=True):
                file.write(json_bytes(dict(zip(schema.names, row, strict=True))) + b"\n")


def _values(field: pa.Field) -> Callable[[list[Any]], list[Any]]:
    def parsed(text: str) -> Any:
        try:
            return strict_loads(text)
        except InvalidJson:
            return text

    if pa.types.is_floating(field.type):
        return lambda column: [None if v is None or not math.isfinite(v) else v for v in column]
    if is_json(field):
        return lambda column: [None if v is None else parsed(v) for v in column]
    return lambda column: column


BOM = b"\xef\xbb\xbf"
_UNSAFE = re.compile(f"\r(?!\n)|(?!\r){UNSAFE}")  # a line break of two characters stays


def write_csv(table: Path | pa.Table, target: Path) -> None:
    """Write a table, or that of a Parquet file, as CSV, row by row; left alone when nothing would change. Raises DataError, OutputError."""
    schema, rows = _rows_of(table)
    cells = [_cells(field.type) for field in schema]
    with open_unless_same(target) as file:
        file.write(BOM + _row([_quoted(name) for name in schema.names]))
        for batch in rows:
            columns = [cell(column.to_pylist()) for cell, column in zip(cells, batch.columns, strict=True)]
            file.write(b"".join(map(_row, zip(*columns, strict=True))))


def _rows_of(table: Path | pa.Table) -> tuple[pa.Schema, Iterable[pa.RecordBatch]]:
    return (table.schema, table.to_batches()) if isinstance(table, pa.Table) else (schema_of(table), batches(table))


def _row(cells: Any) -> bytes:
    return (",".join(cells) + "\r\n").encode("utf-8")


def _cells(kind: pa.DataType) -> Callable[[list[Any]], list[str]]:
    if pa.types.is_boolean(kind):
        return lambda values: ["" if v is None else "true" if v else "false" for v in values]
    if pa.types.is_floating(kind):
        return lambda values: ["" if v is None or not math.isfinite(v) else repr(v) for v in values]
    if pa.types.is_integer(kind):
        return lambda values: ["" if v is None else str(v) for v in values]
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return lambda values: ["" if v is None else _quoted(v) for v in values]
    as_json = partial(json.dumps, ensure_ascii=False, separators=(",", ":"), default=str)
    return lambda values: ["" if v is None else _quoted(as_json(v)) for v in values]


def _quoted(text: str) -> str:
    shown = _UNSAFE.sub(lambda sign: f"\\u{ord(sign[0]):04x}", text)
    return '"' + escape(shown).replace('"', '""') + '"'


_WRITERS: dict[str, tuple[str, Callable[[Path | pa.Table, Path], None]]] = {
    "csv": (".csv", write_csv),
    "json": (".jsonl", write_json_lines),
}


def export_tables(folder: RunFolder, formats: Collection[str], iterations: Iterable[int]) -> list[Path]:
    """Write all tables of the run and of these iterations in those of `formats` that are `csv` or `json`.

    Returns the files in a fixed order. Memory is bounded by a few hundred rows. Raises DataError for a table that is
    missing or broken, OutputError.
    """
    writers = [_WRITERS[name] for name in _WRITERS if name in formats]
    if not writers:
        return []
    tables, paths = {folder.export: [folder.samples, folder.outputs]}, []
    for each in map(folder.iteration, iterations):
        tables[folder.export / each.root.name] = [each.records, each.scores, each.judge_inputs]
    for target, sources in tables.items():
        make_folder(target)
        sweep_temporaries(target)
        for table, (ending, write) in product(sources, writers):
            paths.append(target / f"{table.stem}{ending}")
            write(table, paths[-1])
    return paths


_TEXT, _WHOLE, _REAL, _FLAG = pa.string(), pa.int64(), pa.float64(), pa.bool_()
_OF = {"field": _TEXT, "value": _TEXT}  # a breakdown and one of its values; empty for all cases
_BOUNDS = {"low": _REAL, "high": _REAL}
_REPORT_TABLES: Mapping[str, Mapping[str, pa.DataType]] = {
    "scores": {
        **_OF, "score": _TEXT, "stage": _TEXT, "cases": _WHOLE, "n": _WHOLE, "mean": _REAL, **_BOUNDS, "pass_rate": _REAL,
        "pass_low": _REAL, "pass_high": _REAL, "coverage": _REAL,
    },
    "categories": {"category": _TEXT, "total": _WHOLE, "judged": _WHOLE, "passed": _WHOLE, "rate": _REAL, "score": _TEXT},
    "gates": {
        "gate": _TEXT, "tier": _TEXT, "score": _TEXT, "failure_mode": _TEXT, "of": _TEXT, "value": _REAL, **_BOUNDS, "min": _REAL,
        "max": _REAL, "cases": _WHOLE, "verdict": _TEXT, "outcome": _TEXT, "sentence": _TEXT,
    },
    "failure_modes": {field.name: field.type for field in MODE_TABLE},
    "low_scores": {
        "score": _TEXT, "band": _TEXT, "is_low": _FLAG, "up_to": _REAL, "n": _WHOLE, "of": _WHOLE, "share": _REAL, "advice": _TEXT,
    },
}  # fmt: skip


def export_report_tables(
    folder: RunFolder, metrics: Mapping[str, Any], gates: Mapping[str, Any], low_scores: Mapping[str, Any]
) -> list[Path]:
    """Write `export/report/scores.csv`, `categories.csv`, `gates.csv`, `failure_modes.csv` and `low_scores.csv`: the tables of the report as
    numbers, with every breakdown. Arguments: what the report is made from. Returns the files. Raises OutputError."""
    target = folder.export / "report"
    make_folder(target)
    sweep_temporaries(target)
    rows = {
        "scores": _score_rows(metrics),
        "categories": [{**row._asdict(), "score": score} for score, found in [category_rows(metrics)] for row in found],
        "gates": [
            {**gate, **(gate["interval"] or {}), "gate": gate["name"], "cases": gate["n_cases"]} for gate in gates["gates"]
        ],
        "failure_modes": mode_table(folder).to_pylist(),
        "low_scores": [
            {
                **band,
                "score": name,
                "band": band["name"],
                "is_low": band["low"],
                "of": low["n_ok"],
                "advice": " ".join(band["advice"]),
            }
            for name, low in low_scores.items()
            for band in low["bands"]
        ],
    }
    for name, columns in _REPORT_TABLES.items():
        write_csv(pa.Table.from_pylist(rows[name], schema=pa.schema(list(columns.items()))), target / f"{name}.csv")
    return [target / f"{name}.csv" for name in _REPORT_TABLES]


def _groups(metrics: Mapping[str, Any]) -> Iterator[tuple[dict[str, Any], Mapping[str, Any]]]:
    """All cases, then each value of each breakdown, with the cells that name it."""
    yield {"cases": metrics["overall"]["n_cases"]}, metrics["overall"]
    for field, groups in metrics["by"].items():
        for value, group in groups.items():
            yield {"field": field, "value": value, "cases": group["n_cases"]}, group


def _score_rows(metrics: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            **of, **score, **(score["interval"] or {}), "score": name, "stage": metrics["declared"][name]["stage"], "n": score["n_ok"],
            **{f"pass_{end}": bound for end, bound in (score.get("pass_interval") or {}).items()},
        }
        for of, group in _groups(metrics)
        for name, score in group["scores"].items()
    ]  # fmt: skip


Row = Mapping[str, Any]
STATES = ("better", "worse", "same", "inconclusive")


_SCORE_FAMILIES = {
    "mean": ("ragpipe_score_mean", "Mean of a score in its native scale."),
    "interval_low": ("ragpipe_score_interval_low", "Lower end of the interval of the mean."),
    "interval_high": ("ragpipe_score_interval_high", "Upper end of the interval of the mean."),
    "pass_rate": ("ragpipe_score_pass_ratio", "Share of cases that passed, 0 to 1."),
    "n": ("ragpipe_score_cases", "Cases with a value."),
    "noise_floor": (
        "ragpipe_score_noise_floor", "Difference of two means that the judge's noise alone makes in 1 of 20 pairs of runs.",
    ),
    "before_difference": ("ragpipe_score_change", "Paired difference from the previous run of the same series."),
    "before_low": ("ragpipe_score_change_low", "Lower end of its interval."),
    "before_high": ("ragpipe_score_change_high", "Upper end of its interval."),
}  # fmt: skip
"""Name and help of each metric family, by the column of its values."""
_RUN_FAMILIES = {
    "n_cases": ("ragpipe_run_cases", "Cases of the run."),
    "iterations": ("ragpipe_run_iterations", "Iterations of the run."),
    "cost_usd": ("ragpipe_run_cost_usd", "Price of the replies behind the results, in US dollars."),
}
_MODE_FAMILIES = {
    "mean": ("ragpipe_failure_mode_ratio", "Share of cases with a failure mode, 0 to 1."),
    "before_difference": ("ragpipe_failure_mode_change", "Paired difference from the previous run of the same series."),
    "before_low": ("ragpipe_failure_mode_change_low", "Lower end of its interval."),
    "before_high": ("ragpipe_failure_mode_change_high", "Upper end of its interval."),
}
_VERDICT = "ragpipe_score_verdict", "1 for the verdict against the previous run, 0 for the others."
_INFO = "ragpipe_run_info", "1; its labels name the run, its judge and its data."


def open_metrics(rows: Sequence[Row], *, name: str) -> str:
    """The text of a history whose rows are in the order of time, with a last line `# EOF`.

    Args:
        rows: the rows of `history.parquet`.
        name: the name of the runs, a label of every sample.

    Labels: `name` and, for a score, `score` and `series`, for a failure mode `failure_mode` and `series`; nothing that changes with every run, so that Prometheus keeps one
    series per score. Missing values have no sample.
    """
    runs = list({row["run_id"]: row for row in rows}.values())
    every = sorted(rows, key=lambda row: (row["score"], row["series"]))  # stable: the samples of a series follow in time
    ordered, of_modes = ([row for row in every if row["kind"] == kind] for kind in (SCORE, FAILURE_MODE))
    lines: list[str] = []
    for families, of_kind in ((_SCORE_FAMILIES, ordered), (_MODE_FAMILIES, of_modes)):
        for column, family in families.items():
            lines += _family(*family, [(_score_labels(name, row), row[column], row) for row in of_kind])
    decided = [row for row in ordered if row["before_state"] is not None]
    verdicts = [
        ({**_score_labels(name, row), "verdict": state}, row["before_state"] == state, row)
        for _, series in groupby(decided, key=lambda row: (row["score"], row["series"]))
        for state, row in product(STATES, list(series))
    ]
    lines += _family(*_VERDICT, verdicts)
    for column, family in _RUN_FAMILIES.items():
        lines += _family(*family, [({"name": name}, row[column], row) for row in runs])
    named = [({"name": name, **{key: str(row[key]) for key in ("run_id", "judge", "data")}}, 1, row) for row in runs]
    return "\n".join([*lines, *_family(*_INFO, named), "# EOF"]) + "\n"


def _score_labels(name: str, row: Row) -> dict[str, str]:
    return {"name": name, row["kind"]: row["score"], "series": row["series"]}


def _family(name: str, about: str, samples: Iterable[tuple[Mapping[str, str], float | None, Row]]) -> list[str]:
    """The samples that have a value, each with the time of its run in seconds since 1970."""
    escapes, lines = str.maketrans({"\\": "\\\\", "\n": "\\n", '"': '\\"'}), []
    for labels, value, row in samples:
        if value is not None and math.isfinite(value):
            shown = ",".join(f'{key}="{label.translate(escapes)}"' for key, label in labels.items())
            stamp = datetime.fromisoformat(row["created_at"]).timestamp()
            lines.append(f"{name}{{{shown}}} {float(value)!r} {stamp:.3f}")
    return [f"# TYPE {name} gauge", f"# HELP {name} {about}", *lines] if lines else []

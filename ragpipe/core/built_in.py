"""What ragpipe itself brings, by kind and name (`core/registry.py`): texts, so that nothing is imported before it is used."""

from __future__ import annotations

from typing import Any, Final

_TASKS = (
    "calibrate", "compare", "evaluate", "explain", "export", "history", "init", "label", "plan", "rejudge",
    "rescore", "runs", "schema", "store", "verify",
)  # fmt: skip
ENTRIES: Final[Any] = {
    "judge": {"rules": "ragpipe.judge.rules.settings:RulesSettings", "llm": "ragpipe.judge.settings:JudgeSettings"},
    "embedder": {"none": "ragpipe.judge.embedder:NoEmbedder", "minilm": "ragpipe.judge.embedder:MiniLM"},
    "system": {
        "recorded": "ragpipe.data.system_settings:RecordedSystem",
        "python": "ragpipe.data.system_settings:PythonSystem",
        "http": "ragpipe.data.system_settings:HttpSystem",
    },
    "runner": {"local": "ragpipe.runs.settings:LocalRunner"},
    "transport": {
        "live": "ragpipe.runs.settings:LiveTransportSettings",
        "stored": "ragpipe.runs.settings:StoredTransportSettings",
    },
    "section": {  # in the order of the report: is it better, what is wrong, where, the cases, the fine print
        "gates": "ragpipe.report.verdict_section:gates_section",
        "better": "ragpipe.report.results_section:better_section",
        "results": "ragpipe.report.results_section:results_section",
        "shared": "ragpipe.report.results_section:shared_section",
        "methods": "ragpipe.report.results_section:methods_section",
        "corrected": "ragpipe.report.results_section:corrected_section",
        "jury": "ragpipe.report.results_section:jury_section",
        "drift": "ragpipe.report.results_section:drift_section",
        "diagnosis": "ragpipe.report.diagnosis_section:diagnosis_section",
        "low_scores": "ragpipe.report.diagnosis_section:low_scores_section",
        "versions": "ragpipe.report.chunk_section:versions_section",
        "contradictions": "ragpipe.report.diagnosis_section:contradictions_section",
        "categories": "ragpipe.report.spread_section:categories_section",
        "slices": "ragpipe.report.spread_section:slices_section",
        "spread": "ragpipe.report.spread_section:spread_section",
        "distributions": "ragpipe.report.results_section:distributions_section",
        "iterations": "ragpipe.report.cost_section:iterations_section",
        "lowest_cases": "ragpipe.report.diagnosis_section:lowest_cases_section",
        "chunks": "ragpipe.report.chunk_section:chunks_section",
        "coverage": "ragpipe.report.cost_section:coverage_section",
        "cost": "ragpipe.report.cost_section:cost_section",
        "operations": "ragpipe.report.cost_section:operations_section",
        "index": "ragpipe.report.diagnosis_section:index_section",
        "reading": "ragpipe.report.verdict_section:reading_section",
    },
    "task": {name: f"ragpipe.cli.tasks.{name}" for name in _TASKS},
}

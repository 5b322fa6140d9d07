"""What ragpipe itself brings, by kind and name (`core/registry.py`): texts, so that nothing is imported before it is used."""

from __future__ import annotations

from typing import Any, Final

ENTRIES: Final[Any] = {
    "judge": {
        "evidence": "ragpipe.judging.heuristic.settings:HeuristicSettings",
        "llm": "ragpipe.judging.settings:JudgeSettings",
    },
    "embedder": {"none": "ragpipe.embedding.settings:NoEmbedder", "minilm": "ragpipe.embedding.settings:MiniLM"},
    "system": {
        "recorded": "ragpipe.systems.settings:RecordedSystem",
        "python": "ragpipe.systems.settings:PythonSystem",
        "http": "ragpipe.systems.settings:HttpSystem",
    },
    "runner": {"local": "ragpipe.config.runner_settings:LocalRunner"},
    "transport": {
        "live": "ragpipe.config.transport_settings:LiveTransportSettings",
        "stored": "ragpipe.config.transport_settings:StoredTransportSettings",
    },
    "section": {  # in the order of the report: is it better, what is wrong, where, the cases, the fine print
        "better": "ragpipe.reports.sections.better_section:better_section",
        "results": "ragpipe.reports.sections.results_section:results_section",
        "shared": "ragpipe.reports.sections.results_section:shared_section",
        "methods": "ragpipe.reports.sections.results_section:methods_section",
        "corrected": "ragpipe.reports.sections.results_section:corrected_section",
        "jury": "ragpipe.reports.sections.results_section:jury_section",
        "drift": "ragpipe.reports.sections.results_section:drift_section",
        "diagnosis": "ragpipe.reports.sections.diagnosis_section:diagnosis_section",
        "contradictions": "ragpipe.reports.sections.diagnosis_section:contradictions_section",
        "gates": "ragpipe.reports.sections.verdict:gates_section",
        "slices": "ragpipe.reports.sections.spread_section:slices_section",
        "spread": "ragpipe.reports.sections.spread_section:spread_section",
        "distributions": "ragpipe.reports.sections.results_section:distributions_section",
        "iterations": "ragpipe.reports.sections.cost_section:iterations_section",
        "lowest_cases": "ragpipe.reports.sections.diagnosis_section:lowest_cases_section",
        "coverage": "ragpipe.reports.sections.results_section:coverage_section",
        "cost": "ragpipe.reports.sections.cost_section:cost_section",
        "operations": "ragpipe.reports.sections.cost_section:operations_section",
        "index": "ragpipe.reports.sections.diagnosis_section:index_section",
        "reading": "ragpipe.reports.sections.verdict:reading_section",
    },
    "task": {
        name: f"ragpipe.tasks.{name}"
        for name in (
            "calibrate",
            "compare",
            "evaluate",
            "explain",
            "export",
            "history",
            "init",
            "label",
            "plan",
            "rejudge",
            "rescore",
            "runs",
            "schema",
            "store",
            "verify",
        )
    },
}

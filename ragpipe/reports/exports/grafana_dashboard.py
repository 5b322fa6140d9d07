"""A Grafana dashboard over the families of `open_metrics`, ready to import: scores, changes, verdicts, runs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
_SCORE = '{name=~"$name",score=~"$score"}'
_RUN = '{name=~"$name"}'
_SCHEMA_VERSION = 39  # of Grafana 10 and later


def grafana_dashboard() -> str:
    """The dashboard as JSON text. It asks for a Prometheus data source and has the variables `name` and `score`."""
    dashboard = {
        "title": "ragpipe: history of scores",
        "uid": "ragpipe-history",
        "tags": ["ragpipe"],
        "schemaVersion": _SCHEMA_VERSION,
        "editable": True,
        "time": {"from": "now-90d", "to": "now"},
        "templating": {"list": _variables()},
        "panels": _panels(),
    }
    return json.dumps(dashboard, indent=1) + "\n"


def _variables() -> list[dict[str, Any]]:
    source = {"name": "datasource", "label": "data source", "type": "datasource", "query": "prometheus"}
    name = _label_variable("name", "label_values(ragpipe_score_mean, name)")
    score = _label_variable("score", 'label_values(ragpipe_score_mean{name=~"$name"}, score)')
    return [source, name, {**score, "multi": True, "includeAll": True}]


def _label_variable(name: str, query: str) -> dict[str, Any]:
    return {"name": name, "type": "query", "datasource": _SOURCE, "query": query, "refresh": 2, "sort": 1}


def _panels() -> list[dict[str, Any]]:
    panels = [
        _lines(
            "Scores, with their intervals",
            "Means in the native scale. A new series begins where judge, prompts, metric or data changed.",
            [
                ("ragpipe_score_mean" + _SCORE, "{{score}} {{series}}"),
                ("ragpipe_score_interval_low" + _SCORE, "{{score}} {{series}} low"),
                ("ragpipe_score_interval_high" + _SCORE, "{{score}} {{series}} high"),
            ],
        ),
        _lines(
            "Change from the run before, beside the noise of the judge",
            "Paired over the cases of both runs. The noise floor is known for runs of several iterations.",
            [
                ("ragpipe_score_change" + _SCORE, "{{score}}"),
                ("ragpipe_score_change_low" + _SCORE, "{{score}} low"),
                ("ragpipe_score_change_high" + _SCORE, "{{score}} high"),
                ("ragpipe_score_noise_floor" + _SCORE, "{{score}} noise floor"),
            ],
        ),
        _table("Verdicts against the run before", "ragpipe_score_verdict" + _SCORE, only_ones=True),
        _lines("Share of cases that passed", "0 to 1.", [("ragpipe_score_pass_ratio" + _SCORE, "{{score}}")]),
        _lines("Cost of a run", "US dollars.", [("ragpipe_run_cost_usd" + _RUN, "{{name}}")], unit="currencyUSD"),
        _lines(
            "Cases of a run",
            "And its iterations.",
            [
                ("ragpipe_run_cases" + _RUN, "cases"),
                ("ragpipe_run_iterations" + _RUN, "iterations"),
            ],
        ),
        _table("Runs", "ragpipe_run_info" + _RUN),
    ]
    for number, panel in enumerate(panels):
        panel["id"] = number + 1
        panel["gridPos"] = {"h": 9, "w": 12, "x": 12 * (number % 2), "y": 9 * (number // 2)}
    return panels


def _lines(title: str, description: str, queries: Sequence[tuple[str, str]], *, unit: str = "none") -> dict[str, Any]:
    """Lines through the runs. Samples are days apart: each step takes the last one within it, and gaps are bridged."""
    style = {"drawStyle": "line", "showPoints": "always", "pointSize": 6, "spanNulls": True}
    bound = {
        "matcher": {"id": "byRegexp", "options": ".* (low|high|noise floor)$"},
        "properties": [{"id": "custom.lineStyle", "value": {"fill": "dash", "dash": [4, 4]}}],
    }
    targets = [
        {
            "refId": chr(65 + place),
            "datasource": _SOURCE,
            "expr": f"last_over_time({query}[$__interval])",
            "legendFormat": legend,
        }
        for place, (query, legend) in enumerate(queries)
    ]
    config = {"defaults": {"unit": unit, "custom": style}, "overrides": [bound]}
    return {
        "type": "timeseries",
        "title": title,
        "description": description,
        "datasource": _SOURCE,
        "targets": targets,
        "fieldConfig": config,
    }


def _table(title: str, query: str, *, only_ones: bool = False) -> dict[str, Any]:
    expression = f"last_over_time({query}[$__range])" + (" == 1" if only_ones else "")
    target = {"refId": "A", "datasource": _SOURCE, "expr": expression, "format": "table", "instant": True}
    hidden = {"Time": True, "Value": True, "__name__": True, "instance": True, "job": True}
    return {
        "type": "table",
        "title": title,
        "datasource": _SOURCE,
        "targets": [target],
        "transformations": [{"id": "organize", "options": {"excludeByName": hidden}}],
    }

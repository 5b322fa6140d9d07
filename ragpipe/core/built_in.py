"""What ragpipe itself brings, by kind and name (`core/registry.py`): texts, so that nothing is imported before it is used."""

from __future__ import annotations

from typing import Any, Final

ENTRIES: Final[Any] = {
    "judge": {
        "evidence": "ragpipe.judging.heuristic.settings:HeuristicSettings",
        "detector": "ragpipe.judging.detectors.settings:DetectorSettings",
        "llm": "ragpipe.judging.settings:JudgeSettings",
    },
    "embedder": {
        "none": "ragpipe.embedding.settings:NoEmbedder",
        "minilm": "ragpipe.embedding.settings:MiniLM",
        "sentence_transformers": "ragpipe.embedding.settings:SentenceTransformers",
        "litellm": "ragpipe.embedding.settings:ApiEmbedder",
    },
    "runner": {
        "local": "ragpipe.config.runner_settings:LocalRunner",
    },
    "transport": {
        "live": "ragpipe.config.transport_settings:LiveTransportSettings",
        "stored": "ragpipe.config.transport_settings:StoredTransportSettings",
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

"""Models of this machine and of providers: trained verifiers as judges, embedders beside MiniLM, and BERTScore."""

from __future__ import annotations

ENTRIES = {
    "judge": {"detector": "ragpipe.extras.models.detector_settings:DetectorSettings"},
    "embedder": {
        "sentence_transformers": "ragpipe.extras.models.embedders:SentenceTransformers",
        "litellm": "ragpipe.extras.models.embedders:ApiEmbedder",
    },
    "metric": {"BertScoreMetric": "ragpipe.extras.models.bert_score:BertScoreMetric"},
}
INSTALL = (
    "pip install 'huggingface-hub>=0.30' 'lettucedetect>=0.2.3' 'sentence-transformers>=3.0' 'torch>=2.6' 'transformers>=4.57'"
)
"""The packages of the extra `models`, as pyproject.toml has them: on a public index the name of this package may be another project's."""

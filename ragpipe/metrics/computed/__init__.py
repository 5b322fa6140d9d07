"""Metrics that ask no judge: computed from labels, strings, vectors or recorded values. One metric per file.

- `attribution_hit`: Does the answer cite at least one gold item? Computed.
- `bert_score`: BERTScore: how well the answer's tokens match those of the reference answer, in a model's hidden states. 0 to 100.
- `expected_citation_recall`: How many of the sources that a right answer cites does the answer cite? Computed.
- `list_completeness`: How many of the items that the contexts hold does the answer list? Computed.
- `must_quote`: Does the answer quote a source that may only be quoted, where the label asks for it? Computed.
- `recorded`: What people or other judges said of an answer, as scores beside our own. Computed.
- `retrieval`: Hit rate, recall, precision, MRR, nDCG and MAP of the retrieved chunks, and a score of them. Computed, never asks.
- `scope_miss`: Did the folder selection leave out every gold item? Computed.
- `semantic_similarity`: How near the answer's meaning is to the reference answer's, by the vectors of an embedder: 0 to 100.
"""

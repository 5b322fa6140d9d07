"""Metrics that ask no judge: computed from labels, strings, vectors or recorded values. One metric per file.

- `attribution_hit`: Does the answer cite at least one gold item?
- `expected_citation_recall`: How many of the sources that a right answer cites does the answer cite?
- `list_completeness`: How many of the items that the contexts contain does the answer list?
- `must_quote`: Does the answer quote a source that may only be quoted, where the label asks for it?
- `recorded`: Verdicts of people or other judges in the data set, as scores beside our own.
- `retrieval`: Hit rate, recall, precision, MRR, nDCG and MAP of the retrieved chunks, and one weighted score of them.
- `scope_miss`: Did the folder selection leave out every gold item?
- `semantic_similarity`: How close the meanings of answer and reference are, by the vectors of an embedder. 0 to 100.
"""

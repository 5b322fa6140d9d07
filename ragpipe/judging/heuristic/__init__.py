"""The judge `evidence`: string rules instead of a model. No key, no network, no weights (`docs/offline-judge.md`).

`lexicon`, `numbers` and `tokenized_text` read a text; `claim_splitting` finds the claims of an answer; `claim_features`
compares a claim with its sources; `verdict_rules` decides; `citation_checks`, `chunk_grades` and `heuristic_judge` answer
the questions of metrics with that.
"""

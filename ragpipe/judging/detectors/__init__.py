"""The judge `detector`: a trained grounding verifier instead of a language model (`docs/detectors.md`). No call, no key.

`model_folder` finds the files and names them by hash; `passage_parts` splits passages that are too long for a model; `model_input`
turns texts into tokens; `token_batches` computes logits in batches; `reading` is what a model found in a pair of texts;
`unsupported_spans` and `pair_reader` make readings from logits, one per family of models; `torch_models` loads the models;
`reading_session` keeps readings in the call store; `claim_verdicts` and `detector_judge` turn readings into the answers of metrics.
"""

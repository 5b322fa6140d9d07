"""The rules judge: string rules instead of a model. No key, no network, no weights. `rules_judge` is the door."""

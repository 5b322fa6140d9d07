"""From words and files to one configuration, with Hydra: its sources, where each key was set, interpolations, overrides."""

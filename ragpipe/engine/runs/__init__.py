"""Runs on disk: which run a configuration is, their manifests and names, and what may be made of a finished one."""

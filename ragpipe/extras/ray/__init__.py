"""Tasks of Ray that compute the cases of a run, on this machine or on a cluster (docs/extras/ray.md)."""

from __future__ import annotations

ENTRIES = {"runner": {"ray": "ragpipe.extras.ray.settings:RaySettings"}}

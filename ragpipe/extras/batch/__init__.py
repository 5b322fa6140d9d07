"""`transport=batch`: questions go to the Batch API of the judge's provider, together, in rounds, at its lower price."""

from __future__ import annotations

ENTRIES = {"transport": {"batch": "ragpipe.extras.batch.settings:BatchSettings"}}

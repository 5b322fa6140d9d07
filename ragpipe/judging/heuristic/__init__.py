"""The embedded judge: no key, no network, no weights. A smoke alarm, not a judge (`docs/evidence.md`)."""

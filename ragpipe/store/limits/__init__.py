"""Rows that limits are kept in, over all processes of a store: what a provider allows, and what a run may still spend."""

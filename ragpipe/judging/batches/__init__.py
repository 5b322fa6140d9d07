"""Batches of questions at a provider's Batch API: what they are on disk, and how providers make and answer them."""

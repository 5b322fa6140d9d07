"""The only door to a model: questions, replies, limits, cost."""

"""The system under test: where the outputs come from."""

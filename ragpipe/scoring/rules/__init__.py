"""Rules on cases: their language (`conditions`) and inputs, failure modes and the items counted for them, diagnosis, low scores."""

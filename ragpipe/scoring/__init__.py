"""Scoring: what the scores are worth. Pure functions of stored tables; no judge can be reached from here."""

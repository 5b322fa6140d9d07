"""Tests of the call store in PostgreSQL."""

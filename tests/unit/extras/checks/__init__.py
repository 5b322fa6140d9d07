"""Tests of the checks of a judge."""

"""Tests of `runner=ray`."""

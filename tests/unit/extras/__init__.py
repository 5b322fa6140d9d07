"""Tests of what stands beside the house."""

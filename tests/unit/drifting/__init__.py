"""Tests of the room `drifting`."""

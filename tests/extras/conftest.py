"""Runs that tests of extras read too."""

from tests.integration.conftest import travelled_run

__all__ = ["travelled_run"]

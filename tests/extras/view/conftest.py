"""The browser of the tests of pages."""

from tests.slow.report.conftest import browser

__all__ = ["browser"]

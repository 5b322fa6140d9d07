"""The browser of the tests of pages."""

from tests.slow.pages.conftest import browser

__all__ = ["browser"]

"""The working directory with one small data set."""

from tests.support.own_options import here

__all__ = ["here"]

"""PostgreSQL's errors as ours: the place, the cause in words, what to do."""

from __future__ import annotations

import logging
from types import ModuleType
from typing import Any

from ragpipe.core.errors import ConfigError, DataError, OutputError, Problem, RagpipeError
from ragpipe.core.extras import install_command
from ragpipe.store.calls.store_place import PostgresPlace

_AGAIN = frozenset({"40001", "40P01"})  # serialization failure, deadlock: the same transaction passes when repeated
_GONE = ("08", "57P")
"""Classes of SQLSTATE of a connection or a server that went away."""
_IDLE = "25P03"  # the process was stopped in a transaction for so long that the server ended its session
_READ_ONLY = "25006"
_RIGHTS = "42501"
_FULL = ("53100", "53200")
_TABLES = ("42P", "42703", "42804", "23")
"""Tables, columns or rows that are not as ragpipe makes them."""


def postgres_driver() -> ModuleType:
    """psycopg. Raises ConfigError where it is not installed."""
    try:
        import psycopg
    except ImportError as error:
        fix = f"{install_command('postgres')}, or leave store.url out: the store is a SQLite file then"
        problem = Problem("store.url", "package", f"no psycopg ({error})", "the packages of the extra `postgres`", fix)
        raise ConfigError("a call store on PostgreSQL needs an optional package", [problem]) from error
    logging.getLogger("psycopg").setLevel(logging.ERROR)  # its warnings of a lost connection: said in our words
    return psycopg


def is_read_only(error: BaseException) -> bool:
    """Whether the server takes no writes: a standby, which the address leads to until a failover is over."""
    return getattr(error, "sqlstate", None) == _READ_ONLY


def is_lost(error: BaseException) -> bool:
    """Whether the connection is gone, or the server does not take one, or no writes, at the moment."""
    psycopg = postgres_driver()
    if is_read_only(error):
        return True
    if not isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
        return getattr(error, "sqlstate", None) == _IDLE
    state = getattr(error, "sqlstate", None)
    return state is None or state.startswith(_GONE) or state == _IDLE


def is_passing(error: BaseException) -> bool:
    """Whether another transaction was in the way, and this one passes when it is repeated."""
    return getattr(error, "sqlstate", None) in _AGAIN


def cause_of(error: BaseException) -> str:
    """What PostgreSQL says, on one line."""
    return " ".join(str(error).split()).rstrip(".?") or type(error).__name__


class postgres_errors:
    """Turns psycopg's errors into ours."""

    def __init__(self, place: PostgresPlace):
        self._place = place

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if error is not None and isinstance(error, postgres_driver().Error):
            raise postgres_error(self._place, error) from error


def postgres_error(place: PostgresPlace, error: BaseException) -> RagpipeError:
    """The error of ragpipe for one of psycopg's. Raise it `from` that one."""
    state = getattr(error, "sqlstate", None) or ""
    cause, fix = cause_of(error), "see the message of PostgreSQL"
    if state == _RIGHTS:
        fix = (
            f"let this user read and write the tables of schema {place.schema} (docs/postgresql.md has the statements)"
        )
    elif state == _READ_ONLY:
        fix = "name the server that takes writes (with several hosts in the address: target_session_attrs=read-write), or let this user write"
    elif state in _FULL:
        fix = "make room on the server and start again: stored replies are kept"
    elif state.startswith(_TABLES):
        return not_a_call_store(place, f"tables that are not those of a call store ({cause})")
    elif is_lost(error):
        fix = "check that the server runs and lets this user in (`psql` with the same address), then start again"
    return OutputError(f"cannot use the call store {place}: {cause}. To fix: {fix}.")


def not_a_call_store(place: PostgresPlace, content: str) -> DataError:
    """The error for a schema that has no call store in it."""
    fix = "name another schema: store.url=postgresql://...?schema=NAME. Nothing is ever replaced automatically"
    problem = Problem(str(place), f"schema {place.schema}", content, "a call store, or nothing", fix)
    return DataError("the call store cannot be read", [problem])

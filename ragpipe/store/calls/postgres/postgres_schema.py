"""The version of the tables in a schema: checked at every start, made by alembic where there are none."""

from __future__ import annotations

from pathlib import Path
from threading import Lock

from ragpipe.core.errors import ConfigError, DataError, OutputError, Problem
from ragpipe.core.extras import install_command
from ragpipe.core.version import __version__
from ragpipe.schema.format_version import FORMAT, format_mismatch
from ragpipe.store.calls.postgres.postgres_connection import PostgresConnection, connect
from ragpipe.store.calls.postgres.postgres_errors import not_a_call_store, postgres_driver, postgres_error
from ragpipe.store.calls.postgres.postgres_link import PostgresLink
from ragpipe.store.calls.store_place import PostgresPlace

HEAD = "0001"
"""The version of the tables that this ragpipe reads and writes: the newest file in migrations/versions."""
OLDER: tuple[str, ...] = ()
"""Versions that `task=store action=migrate` brings up to it."""
_FOLDER = Path(__file__).parent / "migrations"
_VERSIONS = "alembic_version"
_ALEMBIC = Lock()  # alembic has one environment in a process


def version_of(db: PostgresConnection) -> str | None:
    """The version of the tables, None where the schema has none."""
    if not has_table(db, _VERSIONS):
        return None
    row = db.execute(f"SELECT version_num FROM {_VERSIONS}").fetchone()
    return str(row[0]) if row else None


def has_table(db: PostgresConnection, name: str) -> bool:
    """Whether the schema has a table. Other schemas, of other programs, are not looked at."""
    statement = "SELECT 1 FROM pg_tables WHERE schemaname = current_schema() AND tablename = ?"
    return db.execute(statement, (name,)).fetchone() is not None


def check_tables(place: PostgresPlace, db: PostgresConnection) -> bool:
    """Whether the schema has the tables of this format; False where it has none.

    Raises FormatMismatch for those of another version, DataError for another program's.
    """
    version = version_of(db)
    if version is None:
        if has_table(db, "calls"):
            raise not_a_call_store(place, "a table `calls` of another program")
        return False
    if version in OLDER:
        fix = "`python -m ragpipe task=store action=migrate store.url=...` brings them up to date; replies are kept"
        raise format_mismatch("the tables of the call store are older", str(place), version, None, fix)
    row = db.execute("SELECT value FROM meta WHERE name = 'format'").fetchone() if version == HEAD else None
    if version != HEAD or row is None or row[0] != str(FORMAT):
        fix = "use the ragpipe that made them, or another schema: store.url=postgresql://...?schema=NAME"
        stored = version if version != HEAD else (row and row[0])
        raise format_mismatch(
            "a call store of another format is not read, continued or changed", str(place), stored, None, fix
        )
    return True


def make_tables(link: PostgresLink) -> bool:
    """Make the tables, or bring older ones up to date; whether anything was to be done. Several processes may do so at once.

    All of it is one transaction, which `link` repeats where the database went away.

    Raises ConfigError without alembic, OutputError where the user may not make tables, DataError for another program's tables.
    """
    return link.read(lambda db: version_of(db) != HEAD and _migrate_or_wait(link.place, db))


def _migrate_or_wait(place: PostgresPlace, db: PostgresConnection) -> bool:
    """Each of several processes makes the tables in one transaction: the first one's stand, the others' meet them and end."""
    errors = postgres_driver().errors
    try:
        with _ALEMBIC:
            _migrate(place)
        return True
    except (errors.UniqueViolation, errors.DuplicateTable, errors.DuplicateSchema, errors.DuplicateObject) as error:
        if version_of(db) != HEAD:
            raise not_a_call_store(place, "tables of the same names that no call store made") from error
        return False
    except errors.ReadOnlySqlTransaction as error:  # a store without tables is not in use: no failover is waited for
        raise postgres_error(place, error) from error


def _migrate(place: PostgresPlace) -> None:
    """Run the migrations up to `HEAD`, with a connection that alembic gets from us. Raises psycopg's errors."""
    try:
        from alembic.config import Config
        from alembic.runtime.environment import EnvironmentContext
        from alembic.script import ScriptDirectory
        from sqlalchemy import create_engine
        from sqlalchemy.exc import DBAPIError
        from sqlalchemy.pool import NullPool
    except ImportError as error:
        fix = f"{install_command('postgres')}: it is only needed to make or change the tables"
        problem = Problem(str(place), "package", f"no alembic ({error})", "the packages of the extra `postgres`", fix)
        raise ConfigError("the tables of the call store cannot be made", [problem]) from error
    config = Config()
    config.set_main_option("script_location", str(_FOLDER).replace("%", "%%"))
    script = ScriptDirectory.from_config(config)

    def raw_connection() -> object:
        raw = connect(place).raw
        raw.autocommit = False
        return raw

    engine = create_engine("postgresql+psycopg://", creator=raw_connection, poolclass=NullPool)
    refused: BaseException | None = None
    try:
        with (
            engine.connect() as connection,
            EnvironmentContext(config, script, fn=lambda rev, _: script._upgrade_revs(HEAD, rev)) as environment,
            connection.begin(),
        ):
            if connection.exec_driver_sql("SELECT to_regnamespace(%s)", (place.quoted_schema,)).scalar() is None:
                connection.exec_driver_sql(f"CREATE SCHEMA {place.quoted_schema}")
            environment.configure(connection=connection, version_table=_VERSIONS, version_table_schema=place.schema)
            environment.run_migrations()
            for name, value in (("format", str(FORMAT)), ("ragpipe", __version__)):
                connection.exec_driver_sql(
                    "INSERT INTO meta VALUES (%s, %s) ON CONFLICT (name) DO UPDATE SET value = EXCLUDED.value",
                    (name, value),
                )
    except DBAPIError as error:
        if error.orig is None:
            raise OutputError(f"cannot make the tables of the call store {place}: {error}") from error
        refused = error.orig
    finally:
        engine.dispose()
    if refused is not None:  # raised out here: the other error has it as its cause, and would become its context
        raise refused


def no_tables(place: PostgresPlace) -> DataError:
    """The error for a schema without a call store, where one is to be read."""
    fix = "set store.url=... to the store of some run, or `task=store action=migrate` to make an empty one"
    problem = Problem(str(place), f"schema {place.schema}", "no tables", "the call store of some run", fix)
    return DataError("there is no call store", [problem])

"""Where a call store is: a SQLite file by its path, or a schema of a PostgreSQL database by its URL."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

SCHEMA = "ragpipe"
"""The schema of a URL that names none."""
OUTAGE_S = 600.0
_SCHEMES = ("postgresql", "postgres")
_IDENTIFIER = re.compile(r"[a-z_][a-z0-9_]{0,62}\Z")
_SECRET = re.compile(r"(?i)password|secret|token")


@dataclass(frozen=True, slots=True)
class PostgresPlace:
    """A schema of a PostgreSQL database.

    `url` is the address as libpq reads it, without a password and without the schema. `outage_s` is for how many seconds a database
    that went away is waited for.
    """

    url: str
    schema: str = SCHEMA
    outage_s: float = OUTAGE_S

    def __str__(self) -> str:
        return self.url if self.schema == SCHEMA else f"{self.url} (schema {self.schema})"

    @property
    def quoted_schema(self) -> str:
        """The schema as statements name it: it may be a word of SQL."""
        return '"' + self.schema.replace('"', '""') + '"'

    @property
    def setting(self) -> str:
        """The word of the command line that names this place."""
        separator = "&" if "?" in self.url else "?"
        return f"store.url={self.url}" + ("" if self.schema == SCHEMA else f"{separator}schema={self.schema}")


StorePlace = Path | PostgresPlace


def store_place_of(url: str | None, path: str | None, output_dir: str, outage_s: float = OUTAGE_S) -> StorePlace:
    """The place of a store by its settings: `url`, or the file `calls.sqlite` in the folder of `store_folder_of`."""
    if url is None:
        return store_folder_of(path, output_dir) / "calls.sqlite"
    address, _, query = url.partition("?")
    options = parse_qsl(query, keep_blank_values=True)
    schema = next((value for name, value in options if name == "schema"), SCHEMA)
    rest = urlencode([option for option in options if option[0] != "schema"], quote_via=quote)
    return PostgresPlace(f"{address}?{rest}" if rest else address, schema, outage_s)


def store_folder_of(path: str | None, output_dir: str) -> Path:
    """The folder of what stands beside a call store, on this machine: drift files, budgets, batches."""
    return Path(path or Path(output_dir) / ".store")


def url_fault(url: str) -> str | None:
    """What is wrong with the URL of a store, as the end of "expected ...", None when nothing is. No part of the URL is in it.

    The URL is written into run folders and messages, so it can hold no password.
    """
    example = "postgresql://user@host:5432/database"
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return f"an address such as {example}"
    named = parse_qsl(parts.query, keep_blank_values=True)
    options = dict(named)
    if parts.scheme not in _SCHEMES:
        return f"an address such as {example}"
    if parts.password is not None or any(_SECRET.search(name) for name in options):
        return (
            f"an address without a password, {example}: the password comes from PGPASSWORD, from ~/.pgpass or from a service "
            "of PGSERVICE"
        )
    if not unquote(parts.path).strip("/") and "dbname" not in options and "service" not in options:
        return f"an address that names a database, {example}"
    if sum(name == "schema" for name, _ in named) > 1:
        return "one schema=NAME"
    if "schema" not in options and difflib.get_close_matches("schema", options, cutoff=0.75):
        return "schema=NAME, in exactly these letters: an option of this URL is nearly spelt so"
    if not _IDENTIFIER.match(options.get("schema", SCHEMA)):
        return "schema=NAME of lower-case letters, digits and '_', at most 63"
    return None

"""The optional packages of an installation, and how they are installed."""

from __future__ import annotations

EXTRAS = {
    "postgres": ("alembic>=1.13", "psycopg[binary]>=3.2", "sqlalchemy>=2.0"),
    "ray": ("ray>=2.52",),
}
"""By extra that a setting can need the packages that it brings, as pyproject.toml has them."""


def install_command(extra: str) -> str:
    """The command that installs what an extra brings. It names the packages themselves: on a public index the name of this package
    may be another project's."""
    return " ".join(["pip install", *(f"'{package}'" for package in EXTRAS[extra])])

"""The tables of a call store in PostgreSQL, made and changed by alembic with plain SQL."""

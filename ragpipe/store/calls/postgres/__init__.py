"""The call store in PostgreSQL."""

"""The store in PostgreSQL. `store.py` shows how its parts fit together."""

from perdure.store.postgres.store import PostgresStore

__all__ = ["PostgresStore"]

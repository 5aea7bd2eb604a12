"""The store in one SQLite file. `store.py` shows how its parts fit together."""

from perdure.store.sqlite.store import SQLiteStore

__all__ = ["SQLiteStore"]

"""The store in memory: the reference. `store.py` shows how its parts fit together."""

from perdure.store.memory.store import MemoryStore

__all__ = ["MemoryStore"]

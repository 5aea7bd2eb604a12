"""Persistence: the protocol and its implementations. Imports from `kernel`, `errors` and `limits` only."""

from perdure.store.url import open_store

__all__ = ["open_store"]

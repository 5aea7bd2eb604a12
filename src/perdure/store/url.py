"""From what a user writes (`"orders.db"`, `":memory:"`, a URL) to a store. Nothing is opened yet."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Literal, cast

from perdure.errors import BadArgument, StoreUnusable

# Stores are imported by those who use them: `import perdure` stays quick, and memory needs no apsw.
if TYPE_CHECKING:
    from perdure.store.protocol import Store

_FORMS = "Use a path ('orders.db'), 'sqlite:///orders.db', 'sqlite:////absolute/orders.db' or ':memory:'."


def open_store(url: str | os.PathLike[str]) -> Store:
    """The store that a path or URL names. Raises `BadArgument`, or `StoreUnusable` for what is not supported.

    No error shows the URL itself: it may hold a password.
    """
    if not isinstance(url, str):
        return _sqlite(os.fspath(url))
    if not url.strip():
        raise BadArgument(f"the store is empty. {_FORMS}")
    if "\0" in url:
        raise BadArgument(f"the store contains a NUL character. {_FORMS}")
    if url == ":memory:":
        return _memory()
    scheme, separator, rest = url.partition("://")
    if not separator:
        return _sqlite(url)
    match scheme.lower():
        case "sqlite":
            return _from_sqlite_url(rest)
        case "memory":
            return _memory()
        case "postgresql" | "postgres":
            raise StoreUnusable(f"PostgreSQL support is not in this release. {_FORMS}")
        case other:
            raise BadArgument(f"{other!r} is not a kind of store. {_FORMS}")


def _memory() -> Store:
    from perdure.store.memory import MemoryStore

    return MemoryStore()


def _from_sqlite_url(rest: str) -> Store:
    """`sqlite:///relative`, `sqlite:////absolute`, as SQLAlchemy and others read it."""
    location, _, query = rest.partition("?")
    if not location.startswith("/"):
        raise BadArgument(f"a sqlite URL has three slashes before the path. {_FORMS}")
    from urllib.parse import parse_qs, unquote

    options = parse_qs(query, keep_blank_values=True)
    durability = options.pop("durability", ["full"])[-1]
    if options:
        raise BadArgument(f"unknown options in the sqlite URL: {', '.join(sorted(options))}. Known: durability.")
    path = unquote(location[1:])
    if path in ("", ":memory:"):
        return _memory()
    return _sqlite(path, durability)


def _sqlite(path: str, durability: str = "full") -> Store:
    # Imported here, so that a program that stays in memory needs neither the extension module nor a disk.
    from perdure.store.sqlite import SQLiteStore

    return SQLiteStore(path, cast("Literal['full', 'relaxed']", durability))

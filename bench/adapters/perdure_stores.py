"""The stores that perdure is measured on. Variants: `full`, `relaxed` (both SQLite), `memory`, `postgresql` and
`postgresql-relaxed`."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from bench.wire import Job, Refused
from perdure import Engine

#: Where the first process is killed, the second can go on when the first one's lease is over: these instead of the
#: defaults, in seconds. Absurd's claims are shortened in the same workloads.
SHORT_LEASE = {"lease": 2.0, "heartbeat": 0.5}
_KILLED = ("replay", "recover")


def engine_for(job: Job, **settings: Any) -> Engine:
    if is_postgresql(job) and job.workload in _KILLED:
        settings = {**SHORT_LEASE, **settings}
    match job.variant:
        case "full":
            return Engine(_path(job), **settings)
        case "relaxed":
            return Engine(f"sqlite:///{_path(job)}?durability=relaxed", **settings)
        case "memory":
            return Engine(":memory:", **settings)
        case _:
            return Engine(url_of(job), **settings)


def store_for(job: Job) -> Any:
    """The store by itself, for what looks inside. It is not open yet."""
    if is_postgresql(job):
        from perdure.store.postgres import PostgresStore

        return PostgresStore(url_of(job))
    from perdure.store.sqlite import SQLiteStore

    return SQLiteStore(_path(job))


def url_of(job: Job, **more: str) -> str:
    """Each directory is a schema of its own, so that what is new in a directory is new in the database."""
    options = {"schema": schema_of(job), **more}
    if job.variant == "postgresql-relaxed":
        options["durability"] = "relaxed"
    given = "&".join(f"{name}={value}" for name, value in options.items())
    return f"{job.url}{'&' if '?' in job.url else '?'}{given}"


def schema_of(job: Job) -> str:
    return "bench_" + re.sub(r"\W", "_", Path(job.directory).name)


def is_postgresql(job: Job) -> bool:
    return job.variant.startswith("postgresql")


def must_survive(job: Job) -> None:
    if job.variant == "memory":
        raise Refused("nothing in memory survives the process")


def _path(job: Job) -> str:
    return os.path.join(job.directory, "perdure.db")

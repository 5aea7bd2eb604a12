"""The stores that perdure is measured on. Variants: `full`, `relaxed` (both SQLite) and `memory`."""

from __future__ import annotations

import os
from typing import Any

from bench.wire import Job, Refused
from perdure import Engine


def engine_for(job: Job, **settings: Any) -> Engine:
    path = os.path.join(job.directory, "perdure.db")
    match job.variant:
        case "full":
            return Engine(path, **settings)
        case "relaxed":
            return Engine(f"sqlite:///{path}?durability=relaxed", **settings)
        case _:
            return Engine(":memory:", **settings)


def must_survive(job: Job) -> None:
    if job.variant == "memory":
        raise Refused("nothing in memory survives the process")

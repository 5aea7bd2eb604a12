"""What the server of a store spends on each step, where the store has one."""

from __future__ import annotations

from typing import Any

from bench.adapters.perdure_stores import is_postgresql, schema_of
from bench.wire import Job


class Costs:
    """From now until `note`; `found` when the store is closed."""

    def __init__(self, job: Job) -> None:
        from bench.spent import Server

        self._schema = schema_of(job)
        self._server = Server(job.url)
        self._before = self._server.reading()
        self._each: dict[str, float] = {}

    def note(self, steps: int) -> None:
        spent = self._server.spent(self._before)
        self._each = {
            "server_us": spent.processor_seconds / steps * 1e6,
            "wal_bytes": spent.wal_bytes / steps,
        }

    def found(self) -> dict[str, Any]:
        try:
            return self._each | {"hot": self._server.hot_share(self._schema, "runs")}
        finally:
            self._server.close()


class NoCosts:
    """Of a store that is a part of its process."""

    def note(self, steps: int) -> None:
        pass

    def found(self) -> dict[str, Any]:
        return {}


def costs_of(job: Job) -> Costs | NoCosts:
    return Costs(job) if is_postgresql(job) else NoCosts()

"""The limits: what the disk, SQLite, PostgreSQL and asyncio do without any engine on top of them."""

from __future__ import annotations

import asyncio
import os
import statistics
from typing import Any, NamedTuple

from bench.wire import Job, Stopwatch, milliseconds, serve

ROW = b"x" * 100
BATCH = 500


class Bare(NamedTuple):
    """Commits per second over all of them, and what the median one took. The first is disturbed by others on the disk
    as a rate of steps is, the second is as undisturbed as a median of latencies."""

    rate: float
    milliseconds: float


def bare_commits(path: str, count: int, *, synchronous: str = "full", grown: bool = False) -> Bare:
    """One-row commits of a plain apsw loop in WAL mode. `grown`: after the WAL got its length, so that it is only
    overwritten, which the disk does faster."""
    import apsw

    connection = apsw.Connection(path)
    connection.pragma("journal_mode", "wal")
    connection.pragma("synchronous", synchronous)
    connection.execute("CREATE TABLE IF NOT EXISTS bare (id INTEGER PRIMARY KEY, data BLOB)")
    if grown:
        connection.execute("INSERT INTO bare (data) VALUES (zeroblob(4000000))")
        connection.execute("PRAGMA wal_checkpoint(RESTART)").fetchall()
    samples: list[float] = []
    with Stopwatch() as watch:
        for _ in range(count):
            with milliseconds(samples), connection:
                connection.execute("INSERT INTO bare (data) VALUES (?)", (ROW,))
    connection.close()
    return Bare(count / watch.seconds, statistics.median(samples))


def bare_postgresql_commits(url: str, count: int) -> Bare:
    """One-row commits of a plain psycopg loop, each made durable before the next."""
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        synchronous = connection.execute("SHOW synchronous_commit").fetchone()
        fsync = connection.execute("SHOW fsync").fetchone()
        if synchronous != ("on",) or fsync != ("on",):
            raise RuntimeError(f"PostgreSQL does not wait for the disk: {synchronous=}, {fsync=}")
        connection.execute("CREATE TABLE IF NOT EXISTS bare (id bigserial PRIMARY KEY, data bytea)")
        for _ in range(10):  # psycopg prepares a statement when it has seen it five times
            connection.execute("INSERT INTO bare (data) VALUES (%s)", (ROW,))
        samples: list[float] = []
        with Stopwatch() as watch:
            for _ in range(count):
                with milliseconds(samples):
                    connection.execute("INSERT INTO bare (data) VALUES (%s)", (ROW,))
    return Bare(count / watch.seconds, statistics.median(samples))


def sqlite(job: Job) -> dict[str, Any]:
    import apsw

    path = os.path.join(job.directory, "limits.db")
    full = bare_commits(path, job.counts["commits"])
    relaxed = bare_commits(path, job.counts["commits"], synchronous="normal")
    grown = bare_commits(os.path.join(job.directory, "grown.db"), job.counts["commits"], grown=True)
    connection = apsw.Connection(path)
    connection.pragma("synchronous", "full")
    rows = [(ROW,)] * BATCH
    with Stopwatch() as watch:
        for _ in range(job.counts["batches"]):
            with connection:
                connection.executemany("INSERT INTO bare (data) VALUES (?)", rows)
    connection.close()
    return {
        "SQLite, one-row commits at FULL": full.rate,
        "SQLite, one-row commits at FULL, overwriting a WAL that has its length": grown.rate,
        "SQLite, one-row commits at NORMAL": relaxed.rate,
        f"SQLite, rows in commits of {BATCH} at FULL": job.counts["batches"] * BATCH / watch.seconds,
    }


def postgresql(job: Job) -> dict[str, Any]:
    import psycopg

    single = bare_postgresql_commits(job.url, job.counts["commits"])
    with psycopg.connect(job.url, autocommit=True) as connection:
        rows = [ROW] * BATCH
        with Stopwatch() as batched:
            for _ in range(job.counts["batches"]):
                connection.execute("INSERT INTO bare (data) SELECT unnest(%s::bytea[])", (rows,))
    return {
        "PostgreSQL, one-row commits, synchronous_commit on": single.rate,
        f"PostgreSQL, rows in commits of {BATCH}": job.counts["batches"] * BATCH / batched.seconds,
    }


async def tasks(job: Job) -> dict[str, Any]:
    async def nothing() -> None:
        pass

    with Stopwatch() as watch:
        for _ in range(job.counts["tasks"] // BATCH):
            await asyncio.gather(*(nothing() for _ in range(BATCH)))
    return {"asyncio, tasks made and awaited": job.counts["tasks"] // BATCH * BATCH / watch.seconds}


WORKLOADS = {"sqlite": sqlite, "postgresql": postgresql, "tasks": tasks}

if __name__ == "__main__":
    serve(WORKLOADS)

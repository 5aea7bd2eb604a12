"""perdure with steps that do what steps do in earnest: bring data, wait for a server, block a thread.

Only names that every version of perdure has at its root, so that `bench.compare` can drive an older checkout with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from bench.adapters.perdure_stores import engine_for
from bench.wire import Job, median_seconds
from perdure import step, workflow

Row = dict[str, Any]

#: What a result of this kind takes as JSON. Below the first most are small, beyond the second they belong in a file.
SIZES = {"2k": 2_000, "20k": 20_000}


def rows_of(size: int) -> list[Row]:
    """Rows as a database or an API gives them, of about `size` bytes as JSON."""
    rows: list[Row] = []
    while len(json.dumps(rows, ensure_ascii=False)) < size:
        number = len(rows)
        rows.append(
            {
                "id": 1_000 + number,
                "name": f"Zoë Example {number}",
                "price": number * 1.25,
                "tags": ["new", "sold"],
                "open": number % 2 == 0,
                "note": None,
            }
        )
    return rows


ROWS = {name: rows_of(size) for name, size in SIZES.items()}

#: The port of the server of `io`, set before its runs start.
port = 0


@step
async def fetch_rows(size: str) -> list[Row]:
    return ROWS[size]


@step
async def ask_server(number: int) -> int:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(b"GET /%d HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n" % number)
        return int((await reader.read()).rpartition(b"\r\n")[2])
    finally:
        writer.close()


@step
def increment_in_thread(number: int) -> int:
    return number + 1


@workflow
async def fetch(size: str, times: int) -> int:
    return sum([len(await fetch_rows(size)) for _ in range(times)])


@workflow
async def ask(times: int) -> int:
    number = 0
    for _ in range(times):
        number = await ask_server(number)
    return number


@workflow
async def count_in_threads(limit: int) -> int:
    number = 0
    for _ in range(limit):
        number = await increment_in_thread(number)
    return number


async def payload(job: Job) -> dict[str, Any]:
    """Each size by itself: what helps one may hurt the other."""
    return {size: await _measure(job, lambda size=size: fetch(size, job.steps)) for size in SIZES}


async def io(job: Job) -> dict[str, Any]:
    global port
    async with _server() as port:
        return await _measure(job, lambda: ask(job.steps))


async def threads(job: Job) -> dict[str, Any]:
    return await _measure(job, lambda: count_in_threads(job.steps))


async def _measure(job: Job, call: Callable[[], Any]) -> dict[str, Any]:
    """The steps of all runs, started together, per second."""
    async with engine_for(job) as engine:

        async def one() -> None:
            await (await engine.start(call())).result()

        def runs(count: int) -> Awaitable[Any]:
            return asyncio.gather(*(one() for _ in range(count)))

        async def act() -> None:
            await runs(job.runs)

        await runs(job.warm_runs)
        return {"count": job.runs * job.steps, "seconds": await median_seconds(job.times, act)}


@contextlib.asynccontextmanager
async def _server() -> AsyncIterator[int]:
    """An HTTP server of this process that answers `GET /7` with 8. Gives its port."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await reader.readuntil(b"\r\n\r\n")
        text = b"%d" % (int(request.split()[1][1:]) + 1)
        writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s" % (len(text), text))
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0, backlog=1_000) as server:
        yield server.sockets[0].getsockname()[1]


WORKLOADS = {"payload": payload, "io": io, "threads": threads}

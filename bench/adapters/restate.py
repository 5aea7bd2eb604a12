"""Restate: its server beside, the handlers in a process of their own behind Hypercorn (HTTP/2), the client here.

What is killed in the workloads `replay` and `recover` is the process of the handlers; the server stays, as PostgreSQL
does for the systems that are built on it. Steps are `run_typed`, parallel ones `restate.gather`, events awakeables.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import aiohttp
import hypercorn.asyncio
import hypercorn.config
import restate

from bench import wire
from bench.wire import Gate, Job, Stopwatch, forever, milliseconds, paces, resident_bytes

# -- the handlers ------------------------------------------------------------------------------------------------------

service = restate.Service("bench")
began: list[float] = []
late_ms: list[float] = []
#: Awakeables by the number of their run; their ids are known only to the handler that made them.
awakeables: dict[int, str] = {}
gate: Gate


async def increment(number: int) -> int:
    return number + 1


async def increment_noted(number: int) -> int:
    began.append(time.perf_counter())
    return number + 1


async def note_lateness(due: float) -> None:
    late_ms.append((time.time() - due) * 1000)


async def pass_gate(number: int) -> int:
    gate.arrive()
    if gate.closed:
        await forever()
    return number + 1


@service.handler()
async def empty_run(_context: restate.Context, _given: int) -> None:
    return None


@service.handler()
async def count_to(context: restate.Context, limit: int) -> int:
    number = 0
    for _ in range(limit):
        number = await context.run_typed("increment", increment, number=number)
    return number


@service.handler()
async def count_noted(context: restate.Context, limit: int) -> int:
    number = 0
    for _ in range(limit):
        number = await context.run_typed("increment", increment_noted, number=number)
    return number


@service.handler()
async def fan_out(context: restate.Context, width: int) -> int:
    steps = [context.run_typed("increment", increment, number=number) for number in range(width)]
    return sum([await step for step in steps])


@service.handler()
async def wait_for_wake(context: restate.Context, number: int) -> int:
    name, future = context.awakeable(type_hint=int)
    awakeables[number] = name
    return await future + number


@service.handler()
async def sleep_to(context: restate.Context, due: float) -> None:
    # The server records when the sleep ends, so that reading the clock here does no harm.
    await context.sleep(timedelta(seconds=max(0.0, due - time.time())))
    await context.run_typed("note", note_lateness, due=due)


@service.handler()
async def stop_at_gate(context: restate.Context, given: list[int]) -> int:
    before, after = given
    number = 0
    for _ in range(before):
        number = await context.run_typed("increment", increment, number=number)
    number = await context.run_typed("gate", pass_gate, number=number)
    for _ in range(after):
        number = await context.run_typed("increment", increment, number=number)
    return number


@service.handler()
async def one_step(context: restate.Context, number: int) -> int:
    return await context.run_typed("increment", increment, number=number)


@service.handler()
async def one_child(context: restate.Context, number: int) -> int:
    return await context.service_call(one_step, number)


async def serve_handlers(port: int, life: int, arrivals: int) -> None:
    """The process of the handlers: begins when told to, and tells what it noted whenever asked."""
    global gate
    gate = Gate(Job("", "", {}, life=life), arrivals)
    loop = asyncio.get_running_loop()
    lines = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    wire.say(imported=True)
    await lines.readline()
    config = hypercorn.config.Config()
    config.bind = [f"127.0.0.1:{port}"]
    config.h2_max_concurrent_streams = 2_147_483_647
    config.keep_alive_max_requests = 2_147_483_647
    config.loglevel = "ERROR"
    serving = asyncio.create_task(hypercorn.asyncio.serve(restate.app([service]), config, mode="asgi"))  # type: ignore[arg-type]
    while await lines.readline():
        wire.say(
            began=began,
            late_ms=late_ms,
            awakeables=awakeables,
            passed_at=gate.passed_at,
            resident_bytes=resident_bytes(),
        )
    serving.cancel()


# -- the client --------------------------------------------------------------------------------------------------------


class Client:
    def __init__(self, job: Job) -> None:
        self._job = job
        places = json.loads(job.url)
        self._ingress, self._admin, self._server_pid = places["ingress"], places["admin"], places["pid"]
        self._stack = contextlib.AsyncExitStack()

    async def open(self, arrivals: int = 1) -> Client:
        self._http = await self._stack.enter_async_context(
            aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0),
                timeout=aiohttp.ClientTimeout(total=None),
                raise_for_status=True,
            )
        )
        port = self._port()
        command = [sys.executable, "-m", "bench.adapters.restate", "--handlers", str(port), str(self._job.life)]
        self._handlers = await asyncio.create_subprocess_exec(
            *command, str(arrivals), stdin=subprocess.PIPE, stdout=subprocess.PIPE, limit=2**26
        )
        await self._heard()
        self.began_at = time.perf_counter()
        self._tell("begin")
        if self._job.life == 1:
            await self._register(port)
        return self

    def _port(self) -> int:
        """The same in both lives: the server knows the handlers by their address."""
        file = Path(self._job.directory) / "port"
        if not file.exists():
            with socket.socket() as one:
                one.bind(("127.0.0.1", 0))
                file.write_text(str(one.getsockname()[1]))
        return int(file.read_text())

    async def _register(self, port: int) -> None:
        for _ in range(200):
            with contextlib.suppress(OSError):
                _reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.close()
                break
            await asyncio.sleep(0.02)
        body = {"uri": f"http://127.0.0.1:{port}", "force": True}
        async with self._http.post(f"{self._admin}/deployments", json=body):
            pass

    def _tell(self, line: str) -> None:
        assert self._handlers.stdin is not None
        self._handlers.stdin.write(f"{line}\n".encode())

    async def _heard(self) -> dict[str, Any]:
        assert self._handlers.stdout is not None
        line = await self._handlers.stdout.readline()
        if not line:
            raise RuntimeError("the process of the handlers ended")
        heard: dict[str, Any] = json.loads(line)
        return heard

    async def until_killed(self) -> None:
        """Pass on that the moment has come."""
        assert await self._heard() == {"ready": True}
        wire.ready()
        await forever()

    async def notes(self) -> dict[str, Any]:
        self._tell("notes")
        return await self._heard()

    async def memory(self) -> int:
        """Of the handlers and the server together."""
        return int((await self.notes())["resident_bytes"]) + resident_bytes(self._server_pid)

    async def call(self, handler: str, given: Any) -> Any:
        async with self._http.post(f"{self._ingress}/bench/{handler}", json=given) as answer:
            text = await answer.text()
        return json.loads(text) if text else None

    async def send(self, handler: str, given: Any) -> str:
        async with self._http.post(f"{self._ingress}/bench/{handler}/send", json=given) as answer:
            return str((await answer.json())["invocationId"])

    async def attach(self, invocation: str) -> Any:
        async with self._http.get(f"{self._ingress}/restate/invocation/{invocation}/attach") as answer:
            return await answer.json(content_type=None)

    async def resolve(self, awakeable: str, value: Any) -> None:
        async with self._http.post(f"{self._ingress}/restate/awakeables/{awakeable}/resolve", json=value):
            pass


async def seq(job: Job) -> dict[str, Any]:
    client = await Client(job).open()
    await client.call("count_to", job.warm_steps)
    with Stopwatch() as watch:
        assert await client.call("count_to", job.steps) == job.steps
    return {"count": job.steps, "seconds": watch.seconds}


async def many(job: Job) -> dict[str, Any]:
    client = await Client(job).open()
    await asyncio.gather(*(client.call("count_to", job.steps) for _ in range(job.warm_runs)))
    with Stopwatch() as watch:
        found = await asyncio.gather(*(client.call("count_to", job.steps) for _ in range(job.runs)))
    assert found == [job.steps] * job.runs
    return {"count": job.runs * job.steps, "seconds": watch.seconds}


async def fanout(job: Job) -> dict[str, Any]:
    client = await Client(job).open()
    await client.call("fan_out", job.warm_steps)
    with Stopwatch() as watch:
        assert await client.call("fan_out", job.steps) == job.steps * (job.steps + 1) // 2
    return {"count": job.steps, "seconds": watch.seconds}


async def empty(job: Job) -> dict[str, Any]:
    client = await Client(job).open()
    samples: list[float] = []
    for _ in range(job.runs):
        with milliseconds(samples):
            await client.call("empty_run", 0)
    return {"samples_ms": samples}


async def events(job: Job) -> dict[str, Any]:
    client = await Client(job).open()
    samples: list[float] = []
    finished = [asyncio.create_task(client.call("wait_for_wake", number)) for number in range(job.runs)]
    while len(known := (await client.notes())["awakeables"]) < job.runs:
        await asyncio.sleep(0.01)

    async def one(number: int) -> None:
        with milliseconds(samples):
            await client.resolve(known[str(number)], 1)
            assert await finished[number] == number + 1

    with Stopwatch() as watch:
        await asyncio.gather(*(one(number) for number in range(job.runs)))
    return {"count": job.runs, "seconds": watch.seconds, "samples_ms": samples}


async def timers(job: Job) -> dict[str, Any]:
    client = await Client(job).open()
    await client.call("sleep_to", time.time())
    gap = job.counts["spread_ms"] / 1000 / job.runs
    before = await client.memory()
    first = time.time() + 2 + job.runs / 200
    finished = [asyncio.create_task(client.call("sleep_to", first + number * gap)) for number in range(job.runs)]
    # All of them were asked for at once; a second before the first is due they are asleep, or their lateness shows it.
    await asyncio.sleep(max(0.0, first - 1 - time.time()))
    held = await client.memory() - before
    await asyncio.gather(*finished)
    return {"samples_ms": (await client.notes())["late_ms"][1:], "bytes_each": held / job.runs}


async def replay(job: Job) -> dict[str, Any]:
    client = await Client(job).open()
    if job.life == 1:
        await client.send("stop_at_gate", [job.steps, 0])
        await client.until_killed()
    while (passed_at := (await client.notes())["passed_at"]) is None:
        await asyncio.sleep(0.01)
    return {"count": job.steps, "seconds": passed_at - client.began_at}


async def recover(job: Job) -> dict[str, Any]:
    client = await Client(job).open(arrivals=job.runs)
    file = Path(job.directory) / "invocations"
    if job.life == 1:
        given = [job.steps // 2, job.steps - job.steps // 2 - 1]
        file.write_text("\n".join(await asyncio.gather(*(client.send("stop_at_gate", given) for _ in range(job.runs)))))
        await client.until_killed()
    found = await asyncio.gather(*(client.attach(name) for name in file.read_text().split()))
    assert found == [job.steps] * job.runs
    return {"count": job.runs, "seconds": time.perf_counter() - client.began_at}


async def children(job: Job) -> dict[str, Any]:
    client = await Client(job).open()
    with Stopwatch() as watch:
        found = await asyncio.gather(*(client.call("one_child", number) for number in range(job.runs)))
    assert found == [number + 1 for number in range(job.runs)]
    return {"count": job.runs, "seconds": watch.seconds}


async def long(job: Job) -> dict[str, Any]:
    client = await Client(job).open()
    assert await client.call("count_noted", job.steps) == job.steps
    return paces((await client.notes())["began"], job.counts["window"])


WORKLOADS = {
    "seq": seq,
    "many": many,
    "fanout": fanout,
    "empty": empty,
    "events": events,
    "timers": timers,
    "replay": replay,
    "recover": recover,
    "children": children,
    "long": long,
}

if __name__ == "__main__":
    if sys.argv[1] == "--handlers":
        asyncio.run(serve_handlers(*(int(text) for text in sys.argv[2:])))
    else:
        wire.serve(WORKLOADS)

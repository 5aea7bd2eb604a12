"""The store fails at the n-th call, for every n, before or after its work: nothing lost, nothing doubled."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import pytest

from perdure import Engine, RunCancelled, current_step, event, receive, send, sleep, step, workflow
from perdure.errors import StoreUnavailable
from support.faulty_stores import OutageStore, every_call
from support.lives import Lives, run_async, until

T = TypeVar("T")

done: list[str] = []


@event
@dataclass
class Number:
    value: int


@event
@dataclass
class Back:
    value: int


@step(max_attempts=2, initial_delay=0.001)
async def effect(name: str) -> str:
    context = current_step()
    done.append(f"{context.run_id} {context.location} {context.attempt}")
    if name == "flaky" and context.attempt == 1:
        raise ValueError
    return name


@workflow
async def outage_child(number: int) -> int:
    await effect("child")
    return number * 2


@workflow
async def outage_other() -> int:
    number = (await receive(Number)).value
    await send("main", Back(number + 1), key="back")
    return number


@workflow
async def outage_main() -> list[Any]:
    first = await effect("first")
    flaky = await effect("flaky")
    both = await asyncio.gather(outage_child(21), effect("beside"))
    await send("other", Number(5), key="five")
    back = (await receive(Back)).value
    await sleep(0.005)
    return [first, flaky, *both, back]


EXPECTED = ["first", "flaky", 42, "beside", 6]


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Outages are waited out quickly; how long is not what is tested here."""
    monkeypatch.setattr("perdure.limits.STORAGE_RETRY_SECONDS_MIN", 0.001)
    monkeypatch.setattr("perdure.limits.STORAGE_RETRY_SECONDS_MAX", 0.01)


async def insist(call: Callable[[], Awaitable[T]]) -> T:
    """What a client does that hears StoreUnavailable: it repeats the call."""
    while True:
        try:
            return await call()
        except StoreUnavailable:
            await asyncio.sleep(0.001)


async def scenario(store: OutageStore, fault: str) -> None:
    done.clear()
    engine = Engine(store, sweep_interval=0.01, shutdown_grace=0.1)  # type: ignore[arg-type]
    await engine.open()
    try:
        other = await insist(lambda: engine.start(outage_other(), id="other"))
        main = await insist(lambda: engine.start(outage_main(), id="main"))
        where = f"{fault}: {store.failed}"
        try:
            assert await insist(lambda: main.result(timeout=5)) == EXPECTED, where
            assert await insist(lambda: other.result(timeout=5)) == 5, where
        except TimeoutError:
            raise AssertionError(f"stuck after a fault at {where}") from None
        assert sorted(done) == sorted(set(done)), f"a step ran twice after {where}: {done}"
        kinds = [entry.kind for entry in await insist(lambda: engine.admin.history("main"))]
        assert kinds.count("completed") == 1
        assert kinds.count("event_received") == 1
        assert kinds.count("child_started") == 1
        assert len(await insist(lambda: engine.list())) == 3, where
    finally:
        store.fail_at = range(0)
        await engine.close()


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_single_fault_at_every_call_loses_and_doubles_nothing(lives: Lives, after: bool) -> None:
    """Each call of the store fails once, before it is done or after it. FAULTS B1 and B2, CONFORMANCE W2."""

    async def main() -> None:
        calm = OutageStore(lives.fresh().store(), 0, after=after)
        await scenario(calm, "none")
        hit: set[str] = set()
        for name, number in every_call(calm.counts):
            store = OutageStore(lives.fresh().store(), number, after=after, only=name)
            await scenario(store, f"{name} {number}")
            hit.update(store.failed)
        assert {"create_all", "commit"} <= hit, "the faults really happened"

    run_async(main(), patience=60)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_outage_of_several_calls_is_waited_out(lives: Lives, after: bool) -> None:
    """FAULTS B1 and B2: ten calls in a row fail, from several starting points."""

    async def main() -> None:
        for fail_at in range(1, 40, 5):
            await scenario(OutageStore(lives.fresh().store(), fail_at, after=after, times=10), f"from {fail_at}")

    run_async(main(), patience=60)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_fault_at_every_call_of_a_recovery_loses_and_doubles_nothing(lives: Lives, after: bool) -> None:
    """FAULTS B1 and B2: a second life that has to claim, load and replay while the store fails."""

    async def first_life(one: Lives) -> None:
        done.clear()
        async with one.engine() as engine:
            await engine.start(recovered_later(), id="run")
            await until(lambda: len(done) == 1)

            async def waits() -> bool:
                return (await engine.status("run")).records == 2

            await until(waits)
            await one.crash(engine)
        async with one.engine(worker=False) as client:
            await client.send("run", Number(3), key="three")

    async def second_life(one: Lives, name: str | None, number: int) -> Counter[str]:
        store = OutageStore(one.store(), number, after=after, only=name)
        engine = Engine(store, sweep_interval=0.01, shutdown_grace=0.1)  # type: ignore[arg-type]
        await engine.open()
        try:
            try:
                assert await insist(lambda: engine.result("run", timeout=5)) == 3
            except TimeoutError:
                raise AssertionError(f"stuck after a fault at {name} {number}") from None
            assert len(done) == 2, f"{name} {number}: {done}"
            hit.update(store.failed)
            return store.counts
        finally:
            store.fail_at = range(0)
            await engine.close()

    hit: set[str] = set()

    async def main() -> None:
        calm = lives.fresh()
        await first_life(calm)
        for name, number in every_call(await second_life(calm, None, 0)):
            one = lives.fresh()
            await first_life(one)
            await second_life(one, name, number)

    run_async(main(), patience=60)
    assert {"claim", "load", "commit"} <= hit, "the faults really happened"


@workflow
async def recovered_later() -> int:
    await effect("before")
    number = (await receive(Number)).value
    await effect("after")
    return number


@workflow
async def collects_numbers() -> list[int]:
    found: list[int] = []
    while len(found) < 2:
        found.append((await receive(Number)).value)
    try:
        await sleep("1 hour")
    finally:
        await effect("cleanup")
    return found


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("with_worker", [True, False], ids=["worker", "client"])
def test_client_calls_may_be_repeated(lives: Lives, after: bool, with_worker: bool) -> None:
    """FAULTS B2, A15 and A16: start, send with a key, cancel and terminate, each repeated after an unknown outcome."""

    async def one_try(name: str | None, number: int) -> Counter[str]:
        done.clear()
        one = lives.fresh()
        store = OutageStore(one.store(), number, after=after, only=name)
        engine = Engine(store, worker=with_worker, sweep_interval=0.01)  # type: ignore[arg-type]
        async with engine, one.engine() as calm:
            for run_id in ("cancelled", "terminated"):
                await insist(lambda r=run_id: engine.start(collects_numbers(), id=r))  # type: ignore[misc]
                for event_ in (Number(1), Number(2)):
                    await insist(lambda r=run_id, e=event_: engine.send(r, e, key=str(e.value)))  # type: ignore[misc]

                async def asleep(run_id: str = run_id) -> bool:
                    return [wait.kind for wait in (await calm.status(run_id)).waiting] == ["timer"]

                await until(asleep, patience=5)
            await insist(lambda: engine.cancel("cancelled", "why"))
            await insist(lambda: engine.admin.terminate("terminated", "why"))
            for run_id in ("cancelled", "terminated"):
                with pytest.raises(RunCancelled, match="why"):
                    await insist(lambda r=run_id: engine.result(r, timeout=5))  # type: ignore[misc]
                history = await calm.admin.history(run_id)
                received = [entry.data["value"]["value"] for entry in history if entry.kind == "event_received"]
                assert received == [1, 2], f"{name} {number}: each event once"
                assert [entry.kind for entry in history].count("cancelled") == 1
            assert [line.split()[0] for line in done] == ["cancelled"], "only the cancelled one cleans up, once"
            store.fail_at = range(0)
            hit.update(store.failed)
        return store.counts

    hit: set[str] = set()

    async def main() -> None:
        for name, number in every_call(await one_try(None, 0)):
            await one_try(name, number)
        assert {"append", "request_cancel", "terminate"} <= hit, "the faults really happened"
        assert hit & {"create", "create_all"}

    run_async(main(), patience=60)

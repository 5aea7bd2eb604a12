"""`why` and `workers` on workers that die, say nothing, leave, or do not know a workflow."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import msgspec
import pytest

from events.kinds import Note
from perdure import Engine, receive, step, workflow
from perdure.admin import WorkerView
from perdure.admin.attendance import Attendance
from perdure.admin.fleet import LeaseView, Served, State, told_of
from perdure.admin.views import moment
from perdure.authoring.registry import Registry
from perdure.store.memory import MemoryStore
from perdure.store.model import RunRow, Status
from stores.store_kit import create
from support.lives import Lives, run_async, until

gate = asyncio.Event()


@pytest.fixture(autouse=True)
def _closed() -> None:
    globals()["gate"] = asyncio.Event()


@step
async def why_gated() -> str:
    await gate.wait()
    return "through"


@workflow
async def why_steps() -> str:
    return await why_gated()


@workflow
async def why_idle() -> None:
    await receive(Note)


@workflow(name="why_versions", version="1")
async def why_versions_1() -> None:
    await receive(Note)


@workflow(name="why_versions", version="2")
async def why_versions_2() -> None:
    await receive(Note)


async def only(engine: Engine, name: str) -> WorkerView:
    (found,) = [one for one in (await engine.admin.workers()).values() if one.name == name]
    return found


def test_workers_say_who_they_are_and_what_they_run(lives: Lives) -> None:
    """CONFORMANCE W8: release, workflows by name and version, how many runs it holds."""

    async def main() -> None:
        registry = Registry(why_versions_2, why_versions_1, why_idle)
        async with lives.engine(name="north", registry=registry) as engine:
            async with lives.engine(worker=False) as client:
                assert (await only(client, "north")).held == 0
                for number in range(3):
                    await engine.start(why_idle(), id=f"r{number}")
                found = await only(client, "north")
        assert (found.state, found.held, found.release, found.draining_since) == ("alive", 3, "0.1.0", None)
        assert [str(one) for one in found.serves] == ["why_idle@1", "why_versions@1", "why_versions@2"]

    run_async(main())


def test_a_workflow_that_is_defined_later_is_told(lives: Lives) -> None:
    """By the next sweep; until then nobody is misled for long."""

    async def main() -> None:
        registry = Registry(why_idle)
        async with lives.engine(name="north", registry=registry) as engine:
            registry.add_workflow(why_steps, why_steps.place)

            async def told() -> bool:
                return Served("why_steps", "1") in (await only(engine, "north")).serves

            await until(told)

    run_async(main())


def test_a_worker_that_leaves_is_seen_leaving(lives: Lives) -> None:
    """CONFORMANCE W8: by others, while a step of it still runs; `why` names it, and the run goes on elsewhere."""

    async def main() -> None:
        leaving = await lives.engine(name="south").open()
        await leaving.start(why_steps(), id="busy")
        await until(lambda: leaving.worker is not None and leaving.worker.attempts.running == 1)
        closing = asyncio.ensure_future(leaving.close(grace=20))
        async with lives.engine(worker=False) as client:

            async def is_leaving() -> bool:
                return (await only(client, "south")).state == "draining"

            await until(is_leaving)
            reason = await client.admin.why("busy")
            gate.set()
            await closing
            assert [one.name for one in (await client.admin.workers()).values()] == []
        assert reason.kind == "worker-draining"
        assert reason.text.startswith("worker 'south' (pid ")
        assert "has been leaving since 20" in reason.text
        assert "begins nothing new. Step 'why_gated' (test_why_workers.py:" in reason.text
        async with lives.engine() as second:
            assert await second.result("busy") == "through"

    run_async(main())


def test_runs_that_wait_are_given_back_while_a_step_of_another_still_runs(lives: Lives) -> None:
    """FAULTS O16: they need not wait for the grace of their worker, which is an hour here."""

    async def main() -> None:
        leaving = await lives.engine(name="south").open()
        await leaving.start(why_steps(), id="busy")
        await leaving.start(why_idle(), id="idle")
        await until(lambda: leaving.worker is not None and leaving.worker.attempts.running == 1)
        closing = asyncio.ensure_future(leaving.close(grace=3_600))
        async with lives.engine(worker=False) as client:

            async def is_free() -> bool:
                row = await client.store.get("idle")
                return row is not None and row.owner is None and row.status is Status.WAITING

            await until(is_free)
            assert not closing.done()
            assert (await client.store.get("busy")).owner == leaving.worker.id  # type: ignore[union-attr]
        gate.set()
        await closing

    run_async(main())


def test_a_worker_with_nothing_to_do_says_nothing_of_leaving(lives: Lives) -> None:
    """It is gone before anybody could have seen that it goes; that saves a write at each end of a program."""

    async def main() -> None:
        engine = lives.engine()
        told: list[str] = []

        async def drain_worker(worker_id: str, at: int) -> None:
            told.append(worker_id)

        await engine.open()
        engine.store.drain_worker = drain_worker  # type: ignore[method-assign]
        await engine.start(why_idle(), id="idle")
        await engine.close()
        assert told == []

    run_async(main())


# -- what is said, of made-up workers --------------------------------------------------------------------------------

NOW = datetime(2026, 3, 1, 10, 2, 15, tzinfo=UTC)


def at(second: int) -> datetime:
    return NOW.replace(second=second)


def a_worker(name: str, state: State = "alive", *, lease: LeaseView | None = None, serves: str = "order") -> WorkerView:
    return WorkerView(
        id=f"id-{name}", name=name, host="h", pid=12, state=state, release="0.1.0", started_at=at(0),
        draining_since=at(9) if state == "draining" else None, lease=lease, held=1,
        serves=tuple(Served(*pair.split("@")) if "@" in pair else Served(pair, "1") for pair in serves.split()),
    )  # fmt: skip


def a_lease(*, renewed: int, taken_over: int, ends: int) -> LeaseView:
    return LeaseView(
        renewed_at=at(renewed), renewed_seconds_ago=4.0, ends_at=at(ends), left_seconds=6.0,
        take_over_at=at(taken_over), is_process_gone=taken_over < ends,
    )  # fmt: skip


def a_row(owner: str | None, status: Status = Status.RUNNING, workflow: str = "order") -> RunRow:
    async def main() -> RunRow:
        store = MemoryStore()
        await create(store, "run", owner=owner)
        row = await store.get("run")
        assert row is not None
        return msgspec.structs.replace(row, status=status, workflow=workflow, version="1")

    return run_async(main())


def unattended(row: RunRow, *workers: WorkerView) -> tuple[str, str]:
    now = round(NOW.timestamp() * 1_000_000)
    assert moment(now) == NOW
    reason = Attendance(workers, now).unattended(row)
    return ("", "") if reason is None else (reason.kind, reason.text)


def test_a_silent_owner_and_the_moment_of_take_over() -> None:
    """Which worker, since when, and when another one takes its runs at the latest."""
    silent = a_worker("w-1", "silent", lease=a_lease(renewed=11, taken_over=21, ends=21))
    kind, text = unattended(a_row("id-w-1"), silent, a_worker("w-2"))
    assert kind == "worker-silent"
    assert text == (
        "worker 'w-1' (pid 12 on h) has not renewed its lease since 2026-03-01 10:02:11Z; another worker takes the run "
        "over at 2026-03-01 10:02:23Z at the latest, unless it renews until then."
    )


def test_a_silent_owner_whose_process_is_gone() -> None:
    """Sooner than the end of its lease, and nobody waits for it to come back."""
    silent = a_worker("w-1", "silent", lease=a_lease(renewed=11, taken_over=16, ends=21))
    kind, text = unattended(a_row("id-w-1"), silent, a_worker("w-2"))
    assert kind == "worker-silent"
    assert text.endswith(
        ", and its process is gone; another worker takes the run over at 2026-03-01 10:02:18Z at the latest."
    )


def test_a_silent_owner_and_nobody_to_take_over() -> None:
    """Those who live know another workflow, or leave."""
    silent = a_worker("w-1", "silent", lease=a_lease(renewed=11, taken_over=21, ends=21))
    others = a_worker("w-2", serves="refund"), a_worker("w-3", "draining")
    assert unattended(a_row("id-w-1"), silent, *others)[1].endswith(
        "; no other living worker knows workflow 'order' version '1', so nobody takes the run over."
    )


def test_a_dead_owner_is_named() -> None:
    dead = a_worker("w-1", "dead", lease=a_lease(renewed=1, taken_over=11, ends=11))
    kind, text = unattended(a_row("id-w-1"), dead, a_worker("w-2"))
    assert kind == "worker-died"
    assert text == (
        "worker 'w-1' (pid 12 on h) died: it has not renewed its lease since 2026-03-01 10:02:01Z; another worker "
        "takes the run over at its next sweep."
    )
    assert unattended(a_row("id-w-1"), a_worker("w-1", "dead"), a_worker("w-2"))[1].startswith(
        "worker 'w-1' (pid 12 on h) died; another worker takes"
    )
    kind, text = unattended(a_row("id-w-1"), dead)
    assert kind == "no-worker"
    assert (
        "Worker 'w-1' (pid 12 on h), which had it, died: it has not renewed its lease since 2026-03-01 10:02:01Z."
        in text
    )


def test_nobody_knows_the_workflow_and_who_knows_what() -> None:
    """Other versions of the same workflow come first."""
    row = a_row(None, Status.PENDING)
    workers = a_worker("w-1", serves="a b c d e f order@2"), a_worker("w-2", serves="refund")
    kind, text = unattended(row, *workers)
    assert kind == "unknown-workflow"
    assert text == (
        "no living worker knows workflow 'order' version '1'; worker 'w-1' (pid 12 on h) runs order@2, a@1, b@1, c@1, "
        "d@1, e@1 and 1 more; worker 'w-2' (pid 12 on h) runs refund@1. Start one that does: "
        "`perdure worker --app ...`, or register that version again."
    )
    assert told_of([a_worker("w")] * 7, "order").endswith("; 2 more workers")


def test_those_who_know_it_leave() -> None:
    kind, text = unattended(a_row(None, Status.PENDING), a_worker("w-1", "draining"), a_worker("w-2", serves="refund"))
    assert kind == "due"
    assert text.endswith(
        "and no worker takes it: of those that run workflow 'order' version '1' none stays "
        "(worker 'w-1' (pid 12 on h) is draining)."
    )


def test_a_worker_of_an_older_perdure_may_run_anything() -> None:
    """It does not say what it runs."""
    old = msgspec.structs.replace(a_worker("w-1", serves=""), release="")
    assert unattended(a_row(None, Status.PENDING), old)[0] == "due"

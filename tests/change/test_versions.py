"""Versions: runs stay with theirs, new ones take the latest, and what nobody knows waits visibly."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from change.side_by_side import define
from events.kinds import Note
from perdure import Engine, continue_as, info, receive, step, version, workflow
from perdure.authoring.registry import Registry, registry
from perdure.errors import UnknownWorkflow
from perdure.types import Status
from support.lives import Lives, run_async, until
from support.processes import Process


@step
async def nothing() -> None:
    return None


@workflow(name="pinned", version="1")
async def pinned_1() -> str:
    await nothing()
    await receive(Note)
    return f"one {info().version}"


@workflow(name="pinned", version="2")
async def pinned_2() -> str:
    await receive(Note)
    await nothing()
    return f"two {info().version}"


def test_runs_stay_with_the_version_they_started_with(lives: Lives) -> None:
    """CONFORMANCE V4: both are registered at once, both kinds of run are open over a restart."""

    async def main() -> None:
        engine = lives.engine()
        await engine.open()
        await engine.start(pinned_1(), id="old")
        await engine.start(pinned_2(), id="new")

        async def both_wait() -> bool:
            return len(await engine.list(status="waiting")) == 2

        await until(both_wait)
        await lives.crash(engine)
        async with lives.engine() as later:
            for run_id, result in (("old", "one 1"), ("new", "two 2")):
                await later.send(run_id, Note("go"))
                assert await later.result(run_id) == result

    run_async(main())


@workflow(name="upgrading", version="1")
async def upgrading_1(seen: list[str]) -> list[str]:
    note = await receive(Note)
    await continue_as([*seen, f"{version()} heard {note.text}"])


def test_a_run_is_upgraded_at_continue_as_and_not_before(lives: Lives) -> None:
    """CONFORMANCE V4: the newer version is there for a whole life before the run continues; then it stays with that."""

    def deploy() -> None:
        @workflow(name="upgrading", version="2")
        async def upgrading_2(seen: list[str]) -> list[str]:
            note = await receive(Note)
            return [*seen, f"{version()} heard {note.text}"]

    async def main() -> None:
        async with lives.engine() as engine:
            await engine.start(upgrading_1([]), id="run")
        deploy()
        engine = lives.engine()
        await engine.open()
        assert (await engine.status("run")).version == "1"
        await engine.send("run", Note("one"))

        async def continued() -> bool:
            view = await engine.status("run")
            return (view.generation, view.version, view.status) == (2, "2", Status.WAITING)

        await until(continued)
        await lives.crash(engine)
        async with lives.engine() as later:
            await later.send("run", Note("two"))
            assert await later.result("run", timeout=10) == ["1 heard one", "2 heard two"]

    with registry.replaced(Registry(upgrading_1)):
        run_async(main())


def test_the_latest_version_is_found_by_name() -> None:
    """CONFORMANCE V4: numbers are compared as numbers; an unknown name lists close ones."""

    def declare(version: str) -> None:
        @workflow(name="numbered", version=version)
        async def numbered() -> None:
            return None

    for number in ("1.9", "1.10", "1.2"):
        declare(number)
    assert registry.latest("numbered").version == "1.10"
    assert registry.latest("pinned").version == "2"
    with pytest.raises(UnknownWorkflow, match="'numbered'"):
        registry.latest("numberd")


def test_a_run_that_nobody_knows_waits_visibly(lives: Lives, monkeypatch: pytest.MonkeyPatch) -> None:
    """CONFORMANCE V4, W4, FAULTS O6: neither failed nor parked; it says why, and goes on when somebody knows it."""

    async def main() -> None:
        definition = define("known later")
        async with lives.engine(worker=False) as client:
            run = await client.start(definition(), id="run")
            known = Registry()
            async with lives.engine(registry=known) as engine:

                async def says_why() -> bool:
                    return "no worker knows" in ((await client.status("run")).reason or "")

                await until(says_why)
                view = await client.status("run")
                assert view.reason == "no worker knows workflow 'rolling' version 'known later'"
                assert view.status is Status.PENDING
                assert view.records == 1
                known.add_workflow(definition, definition.place)
                await engine.send("run", Note("go"))
                assert (await run.result(timeout=10))[0] == "known later"
                assert (await client.status("run")).reason is None

    run_async(main())


def test_an_unknown_workflow_does_not_hold_up_others(lives: Lives, monkeypatch: pytest.MonkeyPatch) -> None:
    """CONFORMANCE W4, law 8: hundreds of runs nobody knows are released, the one that is known finishes."""

    async def main() -> None:
        definition = define("never known")
        async with lives.engine(worker=False) as client:
            for number in range(300):
                await client.start(definition(), id=f"unknown-{number}")
            run = await client.start(pinned_1(), id="known")
            async with lives.engine(residents_max=50, registry=Registry(pinned_1)) as engine:
                await engine.send("known", Note("go"))
                assert await run.result(timeout=10) == "one 1"
                assert (await engine.status("unknown-0")).status is Status.PENDING

    run_async(main())


def test_old_and_new_workers_side_by_side(tmp_path: Path) -> None:
    """CONFORMANCE V4, FAULTS C19: two real processes, each knows one version; each run is run by the right one."""
    database = tmp_path / "rolling.db"
    versions = {"1": define("1"), "2": define("2")}

    async def main() -> None:
        async with Engine(database, worker=False) as client:
            with (
                Process("change.side_by_side:serve", str(database), "1") as old,
                Process("change.side_by_side:serve", str(database), "2") as new,
            ):
                old.expect("ready")
                new.expect("ready")
                pids = {"1": old.pid, "2": new.pid}
                began = time.monotonic()
                for number in range(8):
                    for version, definition in versions.items():
                        await client.start(definition(), id=f"run-{version}-{number}")
                        await client.send(f"run-{version}-{number}", Note("go"))
                for number in range(8):
                    for version, pid in pids.items():
                        result = await client.result(f"run-{version}-{number}", timeout=40)
                        assert result == [version, pid, pid]
                # The right worker is there and idle all the time, so no run has to wait for another try.
                assert time.monotonic() - began < 5.0

    run_async(main(), patience=60)


def test_a_run_of_an_old_version_waits_for_an_old_worker(tmp_path: Path) -> None:
    """CONFORMANCE V4: only the new worker is there; the run says so, and goes on when the old one is back."""
    database = tmp_path / "rolled.db"
    definition = define("1")

    async def main() -> None:
        async with Engine(database, worker=False) as client:
            await client.start(definition(), id="run")
            with Process("change.side_by_side:serve", str(database), "2") as new:
                new.expect("ready")

                async def says_why() -> bool:
                    return "no worker knows" in ((await client.status("run")).reason or "")

                await until(says_why)
                assert (await client.status("run")).status is Status.PENDING
            with Process("change.side_by_side:serve", str(database), "1") as old:
                old.expect("ready")
                await client.send("run", Note("go"))
                assert await client.result("run", timeout=30) == ["1", old.pid, old.pid]

    run_async(main(), patience=60)

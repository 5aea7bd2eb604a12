"""What a refused call does to its run: nothing of the turn is kept, and other code can fix it."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from perdure import Engine, event, join, receive, step, workflow
from perdure.errors import Forbidden, RunParked
from perdure.testing import VirtualEngine
from support.lives import Lives, run_async

_code: dict[str, Any] = {}


@step
async def one() -> int:
    return 1


@step
async def undo_all() -> None:
    _code["undone"] = True


@step
async def reads(path: str) -> str:
    return Path(path).read_text()


def read_now(path: str) -> str:
    return Path(path).read_text()


@workflow
async def reads_after_a_step(path: str) -> str:
    await one()
    if _code.get("fixed"):
        return await reads(path)
    return read_now(path)


@workflow
async def reads_at_once(path: str) -> str:
    return read_now(path)


@workflow
async def goes_on_without(path: str) -> str:
    await one()
    try:
        return read_now(path)
    except Exception:
        await undo_all()
        return "without"


@workflow
async def reads_in_a_branch(path: str) -> Any:
    async def branch() -> str:
        await one()
        return read_now(path)

    return await join(a=branch(), b=one())


@step(max_attempts=1)
async def raises_forbidden() -> None:
    raise Forbidden("mine")


@workflow
async def step_raises_forbidden() -> None:
    await raises_forbidden()


@workflow
async def parent(path: str) -> str:
    return await reads_after_a_step(path)


@pytest.fixture(autouse=True)
def _before() -> None:
    _code.clear()


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "file.txt"
    path.write_text("content")
    return str(path)


def test_a_refused_run_is_parked_and_goes_on_with_fixed_code(lives: Lives, file: str) -> None:
    """FAULTS D10, law 8: the message names call, line and fix; after a deploy the run continues where it was."""

    async def main() -> None:
        async with lives.engine() as engine:
            run = await engine.start(reads_after_a_step(file), id="run")
            with pytest.raises(RunParked, match=r"Path\.read_text\(\) at test_refused_runs.py:\d+.*@step"):
                await run.result()
            assert [entry.kind for entry in await engine.admin.history("run")] == ["started"]
            assert (await engine.admin.why("run")).kind == "parked-forbidden"
            _code["fixed"] = True
            assert await engine.admin.resume("run")
            assert await run.result() == "content"

    run_async(main())


def test_a_run_that_begins_with_it_is_refused_at_the_start(lives: Lives, file: str) -> None:
    """FAULTS D10: an error at the caller, and nothing is written."""

    async def main() -> None:
        async with lives.engine() as engine:
            with pytest.raises(Forbidden, match="read_text"):
                await engine.start(reads_at_once(file), id="run")
            assert await engine.list() == []

    run_async(main())


def test_a_child_that_is_refused_is_parked_and_its_parent_waits(lives: Lives, file: str) -> None:
    """Law 8: fixed, both come to their end."""

    async def main() -> None:
        async with lives.engine() as engine:
            run = await engine.start(parent(file), id="run")
            child = "run/reads_after_a_step"
            with pytest.raises(RunParked, match="read_text"):
                await engine.result(child, timeout=30)
            assert not (await run.status()).status.terminal
            _code["fixed"] = True
            assert await engine.admin.resume(child)
            assert await run.result(timeout=30) == "content"

    run_async(main())


def test_a_refusal_in_a_branch_parks_the_run(lives: Lives, file: str) -> None:
    """Inside the group of errors that a join raises it is found, too."""

    async def main() -> None:
        async with lives.engine() as engine:
            run = await engine.start(reads_in_a_branch(file), id="run")
            with pytest.raises(RunParked, match="read_text"):
                await run.result(timeout=30)

    run_async(main())


def test_an_error_of_this_kind_from_a_step_fails_the_run_as_any_other(lives: Lives) -> None:
    """It is recorded, so no deploy could fix it: parking would be for ever."""

    async def main() -> str:
        async with lives.engine() as engine:
            run = await engine.start(step_raises_forbidden(), id="run")
            with pytest.raises(Exception, match="mine"):
                await run.result(timeout=30)
            return str((await run.status()).status)

    assert run_async(main()) == "failed"


def test_code_that_catches_everything_goes_on_with_a_line_in_the_log(
    lives: Lives, file: str, caplog: pytest.LogCaptureFixture
) -> None:
    """An ordinary exception, which may be caught; nobody has to wonder where the file went."""

    async def main() -> str:
        async with lives.engine() as engine:
            return await (await engine.start(goes_on_without(file), id="run")).result(timeout=30)

    assert run_async(main()) == "without"
    assert _code["undone"]
    assert "read_text() at test_refused_runs.py" in caplog.text


@pytest.mark.parametrize("mode", ["warn", "off"])
def test_the_guard_can_be_told_to_warn_or_to_look_away(
    lives: Lives, file: str, mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> str:
        async with lives.engine(io_check=mode) as engine:
            return await (await engine.start(reads_after_a_step(file), id="run")).result(timeout=30)

    assert run_async(main()) == "content"
    assert ("is done again by every replay" in caplog.text) == (mode == "warn")


def test_two_engines_of_one_process_keep_to_their_own_setting(file: str) -> None:
    """The hook is for the process, the decision is the engine's."""

    async def main() -> None:
        async with Engine(":memory:", io_check="off") as free, Engine(":memory:") as guarded:
            assert await (await free.start(reads_at_once(file))).result() == "content"
            with pytest.raises(Forbidden):
                await guarded.start(reads_at_once(file))

    run_async(main())


def test_other_threads_and_the_host_loop_are_never_disturbed(tmp_path: Path, file: str) -> None:
    """Files are read on the host loop and in a thread all the while workflow code runs."""
    stop, errors, reads_done = threading.Event(), list[BaseException](), [0, 0]

    def in_a_thread() -> None:
        while not stop.is_set():
            try:
                read_now(file)
                reads_done[0] += 1
            except BaseException as error:
                errors.append(error)
                return

    async def on_the_host() -> None:
        while not stop.is_set():
            read_now(file)
            reads_done[1] += 1
            await asyncio.sleep(0)

    async def main() -> None:
        thread = threading.Thread(target=in_a_thread)
        thread.start()
        host = asyncio.create_task(on_the_host())
        try:
            async with Engine(tmp_path / "a.db") as engine:
                for _ in range(20):
                    assert await (await engine.start(busy())).result() == 3
        finally:
            stop.set()
            await host
            thread.join()

    run_async(main())
    assert errors == []
    assert all(reads_done)


@workflow
async def busy() -> int:
    total = 0
    for _ in range(3):
        total += await one()
        sum(range(10_000))
    return total


def test_a_replay_is_guarded_as_well(lives: Lives, file: str) -> None:
    """Code that begins to read files in a deploy is parked when its runs are loaded, before any effect."""

    async def main() -> None:
        async with lives.engine(io_check="off") as engine:
            run = await engine.start(reads_then_waits(file), id="run")
            while (await run.status()).status != "waiting":
                await asyncio.sleep(0.01)
        async with lives.engine() as engine:
            await engine.send("run", Wake())
            with pytest.raises(RunParked, match="read_text"):
                await engine.result("run", timeout=30)

    run_async(main())


@event
@dataclass
class Wake:
    pass


@workflow
async def reads_then_waits(path: str) -> None:
    await one()
    read_now(path)
    await receive(Wake)


def test_strict_tests_can_be_made_lenient(file: str) -> None:
    """`strict=False` leaves clocks and randomness alone; files have a setting of their own."""
    engine = VirtualEngine(strict=False, io_check="off")
    try:
        assert engine.run(reads_at_once(file)) == "content"
    finally:
        engine.shut()


def test_the_strict_guard_leaves_a_profiler_alone() -> None:
    """There can be only one: somebody who measures goes on measuring."""
    import sys

    seen: list[str] = []

    def profile(_frame: Any, event: str, _argument: Any) -> None:
        seen.append(event)

    engine = VirtualEngine()
    sys.setprofile(profile)
    try:
        engine.run(busy())
        assert sys.getprofile() is profile
    finally:
        sys.setprofile(None)
        engine.shut()
    assert seen

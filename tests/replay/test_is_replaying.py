"""`is_replaying` flips exactly at the end of the journal; log lines are written once."""

from __future__ import annotations

import logging
from dataclasses import dataclass

import pytest

from kernel.kernel_kit import Drive
from perdure import Engine, event, info, log, receive, send, start_child, step, workflow
from perdure.kernel.commands import Log
from support.lives import Lives, run_async, until

_seen: list[tuple[str, bool]] = []


@event
@dataclass
class Proceed:
    pass


@step
async def work(label: str) -> str:
    return label


@workflow
async def logging_run() -> str:
    log.info("started")
    await work("a")
    log.info("after %s", "a")
    await work("b")
    log.info("after b")
    await receive(Proceed)
    log.info("proceeding")
    return "done"


@workflow
async def noting() -> None:
    _seen.append(("start", info().is_replaying))
    await work("a")
    _seen.append(("a", info().is_replaying))
    await work("b")
    _seen.append(("b", info().is_replaying))
    await work("c")
    _seen.append(("c", info().is_replaying))


@workflow
async def waiting_child() -> str:
    await receive(Proceed)
    return "child"


@workflow
async def parent_that_logs() -> str:
    log.info("starting a child")
    handle = await start_child(waiting_child())
    log.info("started a child")
    return await handle


@workflow
async def sender_that_logs(target: str) -> None:
    await send(target, Proceed())
    log.info("sent")
    await receive(Proceed)
    log.info("answered")


def test_is_replaying_flips_at_the_end_of_the_journal() -> None:
    """CONFORMANCE R5: True up to the last record the code had seen, False from the first new one on."""
    with Drive(noting()) as drive:
        drive.finish("work", "a")
        drive.finish("work#2", "b")
        assert _seen == [("start", False), ("a", False), ("b", False)]
        _seen.clear()
        drive.run, _ = drive.rebuilt(frontier=drive.frontier())
        assert _seen == [("start", True), ("a", True), ("b", True)]
        assert not drive.run.replaying
        _seen.clear()
        drive.finish("work#3", "c")
        assert _seen == [("c", False)]
        _seen.clear()


def test_records_the_code_had_not_seen_are_delivered_live() -> None:
    """CONFORMANCE R5: a record stored by the last commit but not yet handed over is new, whenever it is loaded."""
    with Drive(noting()) as drive:
        drive.finish("work", "a")
        frontier = drive.frontier()
        drive.finish("work#2", "b")
        _seen.clear()
        drive.rebuilt(frontier=frontier)
        assert _seen == [("start", True), ("a", True), ("b", False)]
        _seen.clear()


def test_log_lines_are_commands_only_when_new() -> None:
    """CONFORMANCE R5: replay leaves out the lines of every turn that was committed."""
    with Drive(logging_run()) as drive:
        drive.finish("work", "a")
        lines = [c.message for c in drive.commands if isinstance(c, Log)]
        assert lines == ["started", "after %s"]
        _, commands = drive.rebuilt(frontier=drive.frontier())
        assert [c for c in commands if isinstance(c, Log)] == []


def _lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "perdure.run"]


async def _receiving(engine: Engine, run_id: str) -> bool:
    return any(wait.kind == "receive" for wait in (await engine.status(run_id)).waiting)


def test_log_lines_are_written_once_over_a_crash(lives: Lives, caplog: pytest.LogCaptureFixture) -> None:
    """CONFORMANCE R5, FAULTS D36: the log of a run that crashed in a wait shows every line exactly once."""
    caplog.set_level(logging.INFO, logger="perdure.run")

    async def main() -> None:
        engine = await lives.engine().open()
        await engine.start(logging_run(), id="run")
        await until(lambda: _receiving(engine, "run"))
        await until(lambda: "after b" in _lines(caplog))  # the store may show the commit before its answer is heard
        await lives.crash(engine)
        async with lives.engine() as engine:
            await engine.send("run", Proceed())
            await engine.result("run")

    run_async(main())
    assert _lines(caplog) == ["started", "after a", "after b", "proceeding"]


def test_lines_after_starting_a_child_come_once(lives: Lives, caplog: pytest.LogCaptureFixture) -> None:
    """CONFORMANCE R5: also when the record that woke the code changed nothing of what the run waits for."""
    caplog.set_level(logging.INFO, logger="perdure.run")

    async def main() -> None:
        engine = await lives.engine().open()
        await engine.start(parent_that_logs(), id="run")
        await until(lambda: "started a child" in _lines(caplog))
        child = "run/waiting_child"
        await until(lambda: _receiving(engine, child))
        await lives.crash(engine)
        async with lives.engine() as engine:
            await engine.send(child, Proceed())
            assert await engine.result("run") == "child"

    run_async(main())
    assert _lines(caplog) == ["starting a child", "started a child"]


def test_lines_after_sending_are_written_once(lives: Lives, caplog: pytest.LogCaptureFixture) -> None:
    """CONFORMANCE R5, around a send to another run."""
    caplog.set_level(logging.INFO, logger="perdure.run")

    async def main() -> None:
        engine = await lives.engine().open()
        await engine.start(waiting_child(), id="target")
        await engine.start(sender_that_logs("target"), id="run")
        await until(lambda: _receiving(engine, "run"))
        await until(lambda: "sent" in _lines(caplog))  # written a moment after it can be seen in the store
        await lives.crash(engine)
        async with lives.engine() as engine:
            await engine.send("run", Proceed())
            await engine.result("run")
            assert await engine.result("target") == "child"

    run_async(main())
    assert _lines(caplog) == ["sent", "answered"]

"""The exception of a task that nobody awaits is logged once: with the run and the user's lines, never by a replay."""

from __future__ import annotations

import asyncio
import gc
import inspect
import logging
from collections.abc import Callable
from typing import Any

import pytest

from events.kinds import Note
from kernel.kernel_kit import Drive
from perdure import Break, loop, receive, sleep, step, workflow
from perdure.kernel.commands import Command, Warn
from perdure.kernel.outcomes import Complete
from perdure.types import Invocation
from support.lives import Lives, run_async, until


@step
async def piece(number: int) -> int:
    return number


@step(max_attempts=1)
async def broken() -> None:
    raise LookupError("not there")


async def bad() -> None:
    await piece(1)
    raise ValueError("lost\nsecond line")


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


async def unprintable() -> None:
    await piece(1)
    raise Unprintable


@workflow
async def forgets() -> str:
    asyncio.create_task(bad())  # noqa: RUF006
    await piece(2)
    await piece(3)
    return "done"


@workflow
async def forgets_an_unprintable() -> str:
    asyncio.create_task(unprintable())  # noqa: RUF006
    await piece(2)
    return "done"


@workflow
async def forgets_a_step() -> str:
    asyncio.create_task(broken())  # noqa: RUF006
    await piece(2)
    await piece(3)
    return "done"


@workflow
async def holds_it_to_the_end() -> str:
    task = asyncio.create_task(bad())
    await piece(2)
    await piece(3)
    return task.get_name()


@workflow
async def looks_much_later() -> str:
    task = asyncio.create_task(bad())
    await asyncio.wait([task])
    await piece(2)
    await piece(3)
    return str(type(task.exception()).__name__)


@workflow
async def leaves_it_in_a_cycle() -> str:
    kept: list[Any] = [asyncio.create_task(bad())]
    kept.append(kept)
    del kept
    await piece(2)
    gc.collect()
    await piece(3)
    gc.collect()
    return "done"


@workflow
async def fails_while_it_is_cancelled() -> str:
    async def stubborn() -> None:
        try:
            await piece(1)
        finally:
            raise ValueError("lost")

    task = asyncio.create_task(stubborn())
    await piece(2)
    return task.get_name()


@workflow
async def forgets_in_a_loop() -> str:
    async def body(number: int) -> int | Break[str]:
        asyncio.create_task(bad())  # noqa: RUF006
        await sleep(1)
        return number + 1 if number < 2 else Break("done")

    return await loop(body, 1)


def _line_of(function: Callable[..., Any], text: str) -> int:
    lines, first = inspect.getsourcelines(function)
    return first + next(index for index, line in enumerate(lines) if text in line)


def warnings(commands: list[Command]) -> list[str]:
    return [command.message for command in commands if isinstance(command, Warn)]


SAID = "run 'run': task 'bad' failed and nobody asks for its outcome: ValueError: lost (test_forgotten_tasks.py:{})"


class Life:
    """A run from its start to its end. `ends`: the locations to finish, in order."""

    def __init__(self, invocation: Invocation[Any], *ends: str) -> None:
        self.drive = drive = Drive(invocation)
        #: The warnings of each turn, and where the code stood after it.
        self.said = [warnings(drive.commands)]
        self.frontiers = [drive.frontier()]
        for location in ends:
            failing = location == "broken"
            commands = drive.fail(location, LookupError("not there")) if failing else drive.finish(location, 0)
            self.said.append(warnings(commands))
            self.frontiers.append(drive.frontier())
        assert isinstance(drive.run.outcome, Complete), drive.run.outcome


BAD = SAID.format(_line_of(bad, "raise"))
STEPS = ("bad/piece", "piece", "piece#2")
CASES: dict[str, tuple[Invocation[Any], tuple[str, ...], list[list[str]]]] = {
    "forgotten": (forgets(), STEPS, [[], [BAD], [], []]),
    "held to the end": (holds_it_to_the_end(), STEPS, [[], [], [], [BAD]]),
    "looked at later": (looks_much_later(), STEPS, [[], [], [], []]),
    "in a cycle": (leaves_it_in_a_cycle(), STEPS, [[], [], [], [BAD]]),
    "cancelled at the end": (
        fails_while_it_is_cancelled(),
        ("piece",),
        [
            [],
            [
                "run 'run' ended while tasks were still running; they were cancelled: 'stubborn'.",
                BAD.replace("'bad'", "'stubborn'").replace(
                    BAD.rpartition(":")[2], f"{_line_of(fails_while_it_is_cancelled.spec.function, 'raise')})"
                ),
            ],
        ],
    ),
    "a step": (
        forgets_a_step(),
        ("broken", "piece", "piece#2"),
        [
            [],
            ["run 'run': task 'broken' failed and nobody asks for its outcome: LookupError: not there"],
            [],
            [],
        ],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_it_is_said_once_in_the_turn_in_which_the_code_lets_go_of_it(case: str) -> None:
    """CONFORMANCE P6, FAULTS D17: with the run, the task, the exception and where it was raised."""
    invocation, ends, expected = CASES[case]
    gc.collect()
    life = Life(invocation, *ends)
    life.drive.close()
    assert life.said == expected


@pytest.mark.parametrize("case", CASES)
def test_a_replay_does_not_say_it_again(case: str) -> None:
    """A crash after any record: what the lives before and after it say together is what one life says."""
    invocation, ends, expected = CASES[case]
    life = Life(invocation, *ends)
    drive = life.drive
    try:
        for count in range(1, len(drive.records)):
            run, commands = drive.rebuilt(count, life.frontiers[count - 1])
            assert warnings(commands) == []
            later = [warnings(run.deliver(record)) for record in drive.records[count:]]
            assert isinstance(run.outcome, Complete), run.outcome
            assert [*life.said[:count], *later] == expected, f"a crash after record {count}"
    finally:
        drive.close()


def test_a_collection_at_any_moment_changes_nothing() -> None:
    """In another run's turn, or in none, it is the host's doing: said at the end, which is the same on every replay."""
    with Drive(leaves_it_in_a_cycle()) as drive, Drive(forgets(), run_id="other") as other:
        drive.finish("bad/piece", 0)
        gc.collect()
        assert warnings(other.finish("bad/piece", 0)) == [BAD.replace("'run'", "'other'")]
        assert warnings(drive.finish("piece", 0)) == []
        assert warnings(drive.finish("piece#2", 0)) == [BAD]


def test_an_exception_without_a_text_is_reported_too() -> None:
    life = Life(forgets_an_unprintable(), "unprintable/piece", "piece")
    life.drive.close()
    assert len(life.said[1]) == 1
    assert "Unprintable: <its message could not be read> (test_forgotten_tasks.py" in life.said[1][0]


def test_iterations_of_a_loop_say_it_when_they_end() -> None:
    """Each of its own, also of iterations that a replay leaves out."""
    with Drive(forgets_in_a_loop()) as drive:
        said = [
            warnings(command)
            for number in (1, 2)
            for command in (drive.finish(f"loop~{number}/bad/piece", 0), drive.fire(f"loop~{number}/sleep"))
        ]
        assert isinstance(drive.run.outcome, Complete), drive.run.outcome
    first, second = (BAD.replace("'bad'", f"'loop~{number}/bad'") for number in (1, 2))
    assert said == [[], [first], [], [second]]


def test_the_log_has_one_line_over_all_lives(lives: Lives, caplog: pytest.LogCaptureFixture) -> None:
    """A warning of the logger `perdure.run` with the id of the run; the run itself is none the worse."""

    async def first() -> None:
        async with lives.engine(shutdown_grace=0) as engine:
            await engine.start(forgets_and_waits(), id="run")
            await until(lambda: bool(caplog.records))

    async def second() -> str:
        async with lives.engine() as engine:
            await engine.send("run", Note("go on"))
            result: str = await (await engine.start(forgets_and_waits(), id="run")).result(timeout=20)
            return result

    run_async(first())
    assert run_async(second()) == "done"
    warned = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert [record.getMessage() for record in warned] == [BAD]
    assert vars(warned[0])["run_id"] == "run"


@workflow
async def forgets_and_waits() -> str:
    asyncio.create_task(bad())  # noqa: RUF006
    await receive(Note)
    return "done"

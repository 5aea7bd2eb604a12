"""Replaying any prefix of a journal is a fixed point: the same commands, and nothing new."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import msgspec
import pytest

from kernel.kernel_kit import START, Drive, steps_asked, waiting_for
from perdure import event, now, random, receive, sleep, step, uuid4, workflow
from perdure.kernel.frontier import Frontier, decode_frontier
from perdure.kernel.operations.step import StepOperation
from perdure.kernel.outcomes import Complete


@event
@dataclass
class Ring:
    pass


@step
async def fetch(what: str) -> str:
    return what


async def branch(name: str) -> str:
    one = await fetch(f"{name}-1")
    await sleep(1)
    return one + await fetch(f"{name}-2")


@workflow
async def mixed() -> list[str]:
    got = [await fetch("first")]
    got += await asyncio.gather(branch("a"), branch("b"))
    try:
        async with asyncio.timeout(60):
            await receive(Ring)
            got.append(await fetch("slow"))
    except TimeoutError:
        got.append("timeout")
    try:
        await fetch("bad")
    except ValueError as error:
        got.append(str(error))
    finally:
        got.append(await fetch("cleanup"))
    got += [now().isoformat(), str(random()), str(uuid4())]
    return got


def _run_to_the_end(drive: Drive) -> list[Frontier]:
    """Answer whatever the run waits for, newest first; the frontier after every record."""
    frontiers = [drive.frontier()]
    while drive.run.outcome is None:
        operation = list(drive.run.pending)[-1]
        match operation.kind:
            case "step":
                assert isinstance(operation, StepOperation)
                if operation.args == ("bad",):
                    drive.fail(operation.location, ValueError("refused"))
                else:
                    drive.finish(operation.location, operation.args[0])
            case "timer" if operation.location == "timeout":
                drive.receive("receive", Ring())
            case "timer":
                drive.fire(operation.location)
            case _:
                drive.fire("timeout") if drive.run.pending.get("timeout") else drive.receive(operation.location, Ring())
        frontiers.append(drive.frontier())
    assert isinstance(drive.run.outcome, Complete)
    got = msgspec.json.decode(drive.run.outcome.value)
    assert got[:-3] == ["first", "a-1a-2", "b-1b-2", "timeout", "refused", "cleanup"]
    return frontiers


@pytest.mark.parametrize("with_frontier", [False, True])
def test_replaying_any_prefix_is_a_fixed_point(with_frontier: bool) -> None:
    """CONFORMANCE R7: after n records the rebuilt run waits for exactly what the live one did, deadlines included,
    and asks only for the steps that have no outcome yet."""
    with Drive(mixed()) as drive:
        frontiers = _run_to_the_end(drive)
        assert len(drive.records) == len(frontiers)
        for count, frontier in enumerate(frontiers, 1):
            run, commands = drive.rebuilt(count, frontier if with_frontier else None)
            assert decode_frontier(run.frontier()) == frontier, f"after {count} records"
            pending_steps = [
                location.removeprefix("step ") for location in waiting_for(run) if location.startswith("step ")
            ]
            assert sorted(steps_asked(commands)) == sorted(pending_steps)
            assert run.now == drive.records[count - 1].at
        assert run.outcome == drive.run.outcome is not None


def test_replaying_twice_gives_the_same() -> None:
    """CONFORMANCE R7: a replay leaves nothing behind that the next one could see."""
    with Drive(mixed()) as drive:
        _run_to_the_end(drive)
        outcomes = [drive.rebuilt()[0].outcome for _ in range(3)]
        assert outcomes == [drive.run.outcome] * 3
        assert drive.records[0].at >= START


def test_a_prefix_of_a_finished_journal_goes_on_to_the_same_end() -> None:
    """CONFORMANCE R7: a run rebuilt in the middle and given the rest of the records ends the same way."""
    with Drive(mixed()) as drive:
        _run_to_the_end(drive)
        for count in range(1, len(drive.records)):
            run, _ = drive.rebuilt(count)
            for record in drive.records[count:]:
                run.deliver(record)
            assert run.outcome == drive.run.outcome

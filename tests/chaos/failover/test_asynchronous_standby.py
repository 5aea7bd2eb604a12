"""An asynchronous standby is promoted half a second behind: what was acknowledged in the last moments is lost. Nothing
becomes corrupt, workers drop what they have in memory, and what was lost is run again, or its clients find out."""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from chaos.failover.lagging import LaggingLink
from chaos.failover.machines import Machines
from chaos.failover.nodes import Node, url
from chaos.failover.traffic import Traffic, goes_on
from chaos.failover.work import engine_on
from perdure import Engine
from perdure.errors import RunNotFound
from support.effects import Effects
from support.lives import run_async, until
from support.processes import Process

pytestmark = pytest.mark.long

BEHIND_SECONDS = 0.5
WORKERS = 2
OTHER_PAST = "went back in time"


@dataclass
class Loss:
    """What had been acknowledged and is not on the server that took over: how long before the end of the other one."""

    starts: dict[str, float]
    sends: dict[tuple[str, int], float]
    results: dict[str, float]

    @property
    def window(self) -> float:
        return max([*self.starts.values(), *self.sends.values(), *self.results.values()], default=0.0)


def loss_of(traffic: Traffic, node: Node, end: float) -> Loss:
    """By what the promoted server has, before anybody may write to it."""
    status = dict(node.execute("SELECT id, status FROM perdure.runs"))
    keys = node.execute("SELECT r.id, k.dedup FROM perdure.inbox_keys k JOIN perdure.runs r ON r.key = k.run_key")
    kept = {(name, key.rsplit("\n", 1)[-1]) for name, key in keys}
    return Loss(
        {name: end - at for name, at in traffic.started.items() if name not in status},
        {
            (name, number): end - at
            for (name, number), at in traffic.sent.items()
            if status.get(name) != "completed" and (name, str(number)) not in kept
        },
        {name: end - at for name, at in traffic.ended.items() if status.get(name) != "completed"},
    )


@contextlib.contextmanager
def workers_on(location: str, folder: Path, count: int, lease: float = 10.0):  # type: ignore[no-untyped-def]
    """Worker processes, and the files that they log to."""
    logs = [folder / f"worker{number}.log" for number in range(count)]
    with contextlib.ExitStack() as stack:
        processes = []
        for log in logs:
            process = stack.enter_context(Process("chaos.failover.work:serve", location, str(log), str(lease)))
            process.expect("ready")
            processes.append(process)
        yield processes, logs


def test_a_standby_half_a_second_behind_takes_over(machines: Machines, effects: Effects, tmp_path: Path) -> None:
    """FAULTS B15: the loss window is measured; nothing else is lost than what is in it, and no run is corrupt."""
    primary = Node(machines, "first").initialise()

    async def main() -> None:
        standby = Node(machines, "second")
        # Through a gate: what the promoted server has is looked at before anybody may add to it.
        with LaggingLink(primary.port, 0.0) as link, LaggingLink(standby.port, 0.0) as gate:
            await asyncio.to_thread(standby.follow, link.port, "second")
            location = url(primary.port, gate.port)
            with workers_on(location, tmp_path, WORKERS) as (_, logs):
                async with engine_on(location, worker=False) as client:
                    traffic = Traffic(client, effects, patience=3.0)
                    async with traffic.flowing():
                        await until(lambda: len(traffic.ended) > 50)
                        link.lag(BEHIND_SECONDS)
                        await asyncio.sleep(3)  # of traffic with a standby that is behind
                        gate.cut()
                        # The primary and what is on its way to the standby are gone at one moment.
                        link.cut()
                        end = time.monotonic()
                        await asyncio.to_thread(primary.lose)
                        took = await asyncio.to_thread(standby.promote)
                        loss = loss_of(traffic, standby, end)
                        gate.repair()
                        opened = time.monotonic()
                        went_on = await goes_on(traffic, opened, 30)
                        await asyncio.sleep(3)  # of traffic on the new one
                    lost_for_good = await found_missing(client, traffic)
                    assert set(lost_for_good) <= set(loss.results), "lost outside of the window, or never found"
                    for name in lost_for_good:  # with the same id they run again, as if they never had
                        await traffic._one_run(name)
                    await traffic.check_every_run(client)
                    came_back = traffic.steps_that_came_back()
                    print(
                        f"\nasynchronous standby {BEHIND_SECONDS} s behind: acknowledged {traffic.acknowledged}; lost "
                        f"{len(loss.starts)} starts, {len(loss.sends)} sends, {len(loss.results)} results; the oldest "
                        f"was acknowledged {loss.window:.2f} s before the end; {len(came_back)} recorded steps ran "
                        f"again; {len(traffic.found_lost)} clients were told that their run is gone, "
                        f"{len(lost_for_good)} had their result already; promoted in {took:.2f} s, work went on "
                        f"{went_on:.2f} s after the promoted server let clients in"
                    )
                    assert loss.starts, "nothing was lost: the standby was not behind, and the test shows nothing"
                    assert loss.window < BEHIND_SECONDS + 0.5
                    for log in logs:
                        assert log.read_text().count(OTHER_PAST) == 1, log.read_text()[-3000:]

    run_async(main(), patience=150)


async def found_missing(client: Engine, traffic: Traffic) -> list[str]:
    """Runs of which a client had the result, and that are not there any more: it finds out when it looks."""
    missing = []
    for name in traffic.started:
        try:
            await client.status(name)
        except RunNotFound:
            missing.append(name)
    return missing

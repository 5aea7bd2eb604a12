"""Patroni with a synchronous standby: the leader is killed, and stopped, while workers work. Nothing that was
acknowledged is lost, and work goes on within the time after which Patroni gives a leader up, and five seconds."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from chaos.failover.machines import Machines, go_on, wait_for
from chaos.failover.patroni import TTL_SECONDS, Cluster
from chaos.failover.test_asynchronous_standby import OTHER_PAST, workers_on
from chaos.failover.traffic import Traffic, goes_on
from chaos.failover.work import engine_on
from support.effects import Effects
from support.lives import run_async, until

pytestmark = pytest.mark.long

WORKERS = 3
ROUNDS = 3
LIMIT_SECONDS = TTL_SECONDS + 5


def judge(traffic: Traffic, what: str, took: list[float]) -> None:
    times = ", ".join(f"{seconds:.1f}" for seconds in took)
    print(
        f"\nPatroni, ttl {TTL_SECONDS} s, leader {what} {len(took)} times: a run asked for afterwards had ended after "
        f"{times} s; acknowledged {traffic.acknowledged}; lost {len(traffic.found_lost)} runs, "
        f"{len(traffic.steps_that_came_back())} recorded steps"
    )
    assert not traffic.found_lost, "acknowledged, and gone"
    assert not traffic.steps_that_came_back(), "recorded, and begun again"
    assert max(took) <= LIMIT_SECONDS, f"{max(took):.1f} s"


def test_the_leader_is_killed(machines: Machines, effects: Effects, tmp_path: Path) -> None:
    """FAULTS B15: with a synchronous standby nothing is lost that was acknowledged: no start, no event, no recorded
    step, no result."""

    async def main() -> None:
        cluster = await asyncio.to_thread(Cluster, machines)
        with workers_on(cluster.url, tmp_path, WORKERS) as (_, logs):
            async with engine_on(cluster.url, worker=False) as client:
                traffic, took = Traffic(client, effects), []
                async with traffic.flowing():
                    for number in range(ROUNDS):
                        ended = len(traffic.ended)
                        await until(lambda ended=ended: len(traffic.ended) > ended + 50)
                        leader = await asyncio.to_thread(cluster.leader)
                        killed = await asyncio.to_thread(cluster.kill, leader)
                        took.append(await goes_on(traffic, killed, 3 * LIMIT_SECONDS))
                        if number < ROUNDS - 1:
                            await asyncio.to_thread(cluster.bring_back, leader)
                await traffic.check_every_run(client)
                judge(traffic, "killed", took)
        for log in logs:
            assert log.read_text().count(OTHER_PAST) == ROUNDS, log.read_text()[-3000:]

    run_async(main(), patience=400)


def test_the_leader_is_stopped(machines: Machines, effects: Effects, tmp_path: Path) -> None:
    """FAULTS B15, B3: no connection breaks, and nothing answers. When the former leader goes on, it finds that it is no
    leader any more; what workers still had with it is not used."""

    async def main() -> None:
        cluster = await asyncio.to_thread(Cluster, machines)
        with workers_on(cluster.url, tmp_path, WORKERS):
            async with engine_on(cluster.url, worker=False) as client:
                traffic, took = Traffic(client, effects), []
                async with traffic.flowing():
                    for _ in range(ROUNDS):
                        ended = len(traffic.ended)
                        await until(lambda ended=ended: len(traffic.ended) > ended + 50)
                        leader = await asyncio.to_thread(cluster.leader)
                        stopped_at, stopped = await asyncio.to_thread(cluster.pause, leader)
                        try:
                            took.append(await goes_on(traffic, stopped_at, 3 * LIMIT_SECONDS))
                        finally:
                            go_on(stopped)
                        await asyncio.to_thread(wait_for, lambda one=leader: not one.is_leader, "it to follow")
                        await asyncio.to_thread(cluster.wait_for_standby)
                await traffic.check_every_run(client)
                judge(traffic, "stopped", took)

    run_async(main(), patience=400)

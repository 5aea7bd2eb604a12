"""PgBouncer 1.18 in transaction mode before a PostgreSQL that restarts: workers go on by polling."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from chaos.failover import machines as m
from chaos.failover.machines import Machines
from chaos.failover.nodes import Node, url
from chaos.failover.patroni import DEPLOY
from chaos.failover.test_asynchronous_standby import workers_on
from chaos.failover.traffic import Traffic, goes_on
from chaos.failover.work import engine_on
from support.effects import Effects
from support.lives import run_async, until

pytestmark = pytest.mark.long

RESTARTS = 3
NO_PUSH = "does not deliver notifications"


def pgbouncer_before(machines: Machines, node: Node) -> int:
    """With `deploy/pgbouncer.ini`, but for its addresses and passwords. The port it listens on."""
    port = m.free_port()
    users = machines.write("users.txt", '"perdure" ""\n')
    text = (DEPLOY / "pgbouncer.ini").read_text()
    for given, ours in (
        ("host=127.0.0.1 port=5432 dbname=perdure", f"host=127.0.0.1 port={node.port}"),
        ("listen_port = 6432", f"listen_port = {port}"),
        ("auth_type = scram-sha-256", "auth_type = trust"),
        ("auth_file = /etc/pgbouncer/userlist.txt", f"auth_file = {users}"),
    ):
        assert text.count(given) == 1, given
        text = text.replace(given, ours)
    machines.start("pgbouncer", [m.program("pgbouncer"), machines.write("pgbouncer.ini", text)])
    return port


def test_postgres_restarts_behind_a_pooler(machines: Machines, effects: Effects, tmp_path: Path) -> None:
    """FAULTS B17, B12, B13: as after a crash, three times. Nothing that was acknowledged is lost, work goes on, and one
    line at the start of each worker says that it polls."""

    async def main() -> None:
        node = await asyncio.to_thread(Node(machines, "first").initialise)
        location = url(pgbouncer_before(machines, node))
        with workers_on(location, tmp_path, 2) as (_, logs):
            async with engine_on(location, worker=False) as client:
                traffic, took = Traffic(client, effects), []
                async with traffic.flowing():
                    for _ in range(RESTARTS):
                        ended = len(traffic.ended)
                        await until(lambda ended=ended: len(traffic.ended) > ended + 20)
                        ended_at = time.monotonic()
                        await asyncio.to_thread(node.restart)
                        took.append(await goes_on(traffic, ended_at, 60))
                await traffic.check_every_run(client)
                assert not traffic.found_lost
                assert not traffic.steps_that_came_back()
                version = await asyncio.to_thread(machines.run, [m.program("pgbouncer"), "--version"])
                print(
                    f"\n{version.splitlines()[0]} in transaction mode, PostgreSQL crashed {RESTARTS} times: a run "
                    f"asked for afterwards had ended after {', '.join(f'{seconds:.1f}' for seconds in took)} s; "
                    f"acknowledged {traffic.acknowledged}, lost none"
                )
        for log in logs:
            assert log.read_text().count(NO_PUSH) == 1, log.read_text()[-3000:]

    run_async(main(), patience=150)

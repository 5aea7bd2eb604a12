"""Two PostgreSQL servers that Patroni looks after, and etcd: `deploy/patroni.yml` and `deploy/etcd.sh` as they are."""

from __future__ import annotations

import contextlib
import json
import secrets
import shutil
import time
import urllib.request
from pathlib import Path
from typing import Any

import psycopg

from chaos.failover import machines as m

DEPLOY = Path(__file__).parents[3] / "deploy"
#: As deploy/patroni.yml has it.
TTL_SECONDS = 20


class PatroniNode:
    """A machine with Patroni and its PostgreSQL."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.machines, self.name = cluster.machines, name
        self.port, self.api_port = m.free_port(), m.free_port()
        self.data = self.machines.path(name)
        self.patroni = 0
        self._environment = {
            "PATRONI_NAME": name,
            "PATRONI_RESTAPI_LISTEN": f"127.0.0.1:{self.api_port}",
            "PATRONI_RESTAPI_CONNECT_ADDRESS": f"127.0.0.1:{self.api_port}",
            "PATRONI_POSTGRESQL_LISTEN": f"127.0.0.1:{self.port}",
            "PATRONI_POSTGRESQL_CONNECT_ADDRESS": f"127.0.0.1:{self.port}",
            "PATRONI_POSTGRESQL_DATA_DIR": str(self.data),
            "PATRONI_POSTGRESQL_BIN_DIR": str(self.machines.programs),
            "PATRONI_POSTGRESQL_PGPASS": str(self.machines.path(f"{name}.pgpass")),
            "PATRONI_ETCD3_HOSTS": f"127.0.0.1:{cluster.etcd_port}",
            "PATRONI_SUPERUSER_USERNAME": "postgres",
            "PATRONI_SUPERUSER_PASSWORD": cluster.password,
            "PATRONI_REPLICATION_USERNAME": "replicator",
            "PATRONI_REPLICATION_PASSWORD": cluster.password,
            "PATRONI_LOG_LEVEL": "INFO",
        }
        self._password = cluster.password

    def start(self) -> None:
        self.patroni = self.machines.start(self.name, [m.program("patroni"), self.config()], self._environment)

    def config(self) -> Path:
        """The file of `deploy`, where the user who runs Patroni can read it."""
        return self.machines.write(f"{self.name}.yml", (DEPLOY / "patroni.yml").read_text())

    @property
    def postmaster(self) -> int:
        return int((self.data / "postmaster.pid").read_text().splitlines()[0])

    def processes(self) -> list[int]:
        """Of the whole machine: Patroni, and PostgreSQL, which is no child of it."""
        pids = [self.patroni]
        with contextlib.suppress(FileNotFoundError, ValueError):
            pids.append(self.postmaster)
        return pids

    def state(self) -> dict[str, Any]:
        """What Patroni says of it; empty if it says nothing."""
        with contextlib.suppress(OSError, ValueError):
            with urllib.request.urlopen(f"http://127.0.0.1:{self.api_port}/patroni", timeout=1) as answer:
                return dict(json.load(answer))
        return {}

    @property
    def is_leader(self) -> bool:
        return self.state().get("role") == "master"

    @property
    def is_synchronous_standby(self) -> bool:
        return bool(self.state().get("sync_standby"))

    def execute(self, sql: str) -> list[Any]:
        url = f"postgresql://postgres:{self._password}@127.0.0.1:{self.port}/postgres?connect_timeout=5"
        with psycopg.connect(url, autocommit=True) as connection:
            cursor = connection.execute(sql)
            return cursor.fetchall() if cursor.description else []


class Cluster:
    """See the module docstring."""

    def __init__(self, machines: m.Machines) -> None:
        self.machines = machines
        self.password = secrets.token_hex(12)
        self.etcd_port = m.free_port()
        self._start_etcd()
        self.nodes = [PatroniNode(self, name) for name in ("db1", "db2")]
        for node in self.nodes:
            node.start()
            m.wait_for(lambda: any(each.is_leader for each in self.nodes), f"a leader: {self._logs()}")
        self.wait_for_standby()
        leader = self.leader()
        leader.execute(f"CREATE ROLE shop LOGIN PASSWORD '{self.password}'")
        leader.execute("CREATE DATABASE shop OWNER shop")

    def _start_etcd(self) -> None:
        m.program("etcd")
        script = self.machines.path("etcd.sh")
        shutil.copy(DEPLOY / "etcd.sh", script)
        script.chmod(0o755)
        peer = m.free_port()
        self.machines.start("etcd", ["/bin/sh", script], {
            "DATA_DIR": str(self.machines.path("etcd")),
            "CLIENT_URL": f"http://127.0.0.1:{self.etcd_port}",
            "PEER_URL": f"http://127.0.0.1:{peer}",
        })  # fmt: skip

    def _logs(self) -> str:
        return "\n".join(self.machines.said(name)[-1500:] for name in ("etcd", "db1", "db2"))

    @property
    def url(self) -> str:
        """As deploy/patroni.yml says."""
        hosts = ",".join(f"127.0.0.1:{node.port}" for node in self.nodes)
        return f"postgresql://shop:{self.password}@{hosts}/shop"

    def leader(self) -> PatroniNode:
        (leader,) = [node for node in self.nodes if node.is_leader]
        return leader

    def wait_for_standby(self) -> None:
        """Until whatever happens to the leader loses nothing."""
        m.wait_for(
            lambda: any(node.is_synchronous_standby for node in self.nodes),
            f"a synchronous standby: {self._logs()}",
            90,
        )

    # -- what becomes of the leader ------------------------------------------------------------------------------

    def kill(self, node: PatroniNode) -> float:
        """Its machine loses its power. When that was, by the monotonic clock."""
        m.end(node.processes())
        self.machines.wait(node.patroni)
        return time.monotonic()

    def pause(self, node: PatroniNode) -> tuple[float, list[int]]:
        """Its machine stands still: nothing is answered, no connection is closed. When that was, and its processes."""
        stopped = m.stop(node.processes())
        return time.monotonic(), stopped

    def bring_back(self, node: PatroniNode) -> None:
        node.start()
        self.wait_for_standby()

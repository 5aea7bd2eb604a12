"""The servers that some systems need, each in a directory of its own, stopped when the block ends."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from bench.install import restate_server
from bench.systems import POSTGRESQL, ROOT

START_SECONDS_MAX = 60.0
STOP_SECONDS_MAX = 20.0


class Postgresql:
    """A running server; `database()` is a new, empty one each time."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._made = 0
        self.version = self._read()

    def database(self) -> str:
        self._made += 1
        assert self._process.stdin is not None
        self._process.stdin.write(f"bench{self._made}\n")
        self._process.stdin.flush()
        return self._read()

    def _read(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        if not line:
            raise RuntimeError("PostgreSQL did not start; its reason stands above")
        return line


@contextlib.contextmanager
def postgresql(directory: Path) -> Iterator[Postgresql]:
    command = [str(POSTGRESQL.python), "-W", "ignore", "-m", "bench.postgresql", str(directory / "postgresql")]
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield Postgresql(process)
    finally:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        _wait(process)
        process.stdout.close()


@dataclass(frozen=True)
class Restate:
    ingress: str
    admin: str
    pid: int
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def url(self) -> str:
        """Everything an adapter needs to know, in one string."""
        return json.dumps({"ingress": self.ingress, "admin": self.admin, "pid": self.pid})


@contextlib.contextmanager
def restate(directory: Path) -> Iterator[Restate]:
    """A single node with its defaults, on free ports of the loopback interface."""
    ingress, admin, node = _free_ports(3)
    environment = os.environ | {
        "RESTATE_INGRESS__BIND_ADDRESS": f"127.0.0.1:{ingress}",
        "RESTATE_ADMIN__BIND_ADDRESS": f"127.0.0.1:{admin}",
        "RESTATE_BIND_ADDRESS": f"127.0.0.1:{node}",
        "RESTATE_ADVERTISED_ADDRESS": f"http://127.0.0.1:{node}",
        "RESTATE_DISABLE_TELEMETRY": "true",
        "RESTATE_LOG_FILTER": "warn",
    }
    command = [str(restate_server()), "--base-dir", str(directory / "data"), "--node-name", "bench"]
    with open(directory / "log", "wb") as log:
        process = subprocess.Popen(command, cwd=directory, env=environment, stdout=log, stderr=log)
    try:
        _await_health(f"http://127.0.0.1:{admin}/health", process, directory / "log")
        _await_health(f"http://127.0.0.1:{ingress}/restate/health", process, directory / "log")
        yield Restate(f"http://127.0.0.1:{ingress}", f"http://127.0.0.1:{admin}", process.pid)
    finally:
        process.terminate()
        _wait(process)


def _await_health(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS_MAX
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(OSError, urllib.error.URLError), urllib.request.urlopen(url, timeout=5) as answer:
            if answer.status == 200:
                return
        time.sleep(0.05)
    raise RuntimeError(f"the Restate server did not become ready: {log.read_text(errors='replace')[-300:]}")


def _free_ports(count: int) -> list[int]:
    # All held at once, so that they differ.
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in sockets]


def _wait(process: subprocess.Popen[str] | subprocess.Popen[bytes]) -> None:
    try:
        process.wait(STOP_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()

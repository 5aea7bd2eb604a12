"""A folder for the servers of one test, and their processes: as if each server had a machine, to be lost or stopped.

Everything listens on 127.0.0.1, runs as the user that `support.postgres` runs its server as, and is gone with the test:
processes by their pid, data with the folder. What a killed test run leaves is removed by the next one.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from support import postgres

PREFIX = "perdure-failover-"
PATIENCE_SECONDS = 60.0


class NotInstalled(Exception):
    """A server is missing; says what to install. A test that needs one fails with it."""


def program(name: str) -> str:
    """Where a server of Debian's is."""
    found = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/bin:/usr/local/bin")
    if found is None:
        raise NotInstalled(f"there is no {name!r} on this machine. `make chaos-servers` says how to install it.")
    return found


def free_port() -> int:
    """Not one that the system gives to connections: while the server is down, one of these might get it."""
    while True:
        port = random.randrange(20_000, 32_000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def wait_for(condition: Callable[[], object], what: str, patience: float = PATIENCE_SECONDS) -> None:
    """Of another process, which gives no signal."""
    deadline = time.monotonic() + patience
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {patience:g} s in vain: {what}")
        time.sleep(0.02)


class Machines:
    """See the module docstring.

    with Machines() as machines: ...
    """

    def __init__(self) -> None:
        remove_leftovers()
        self._owner = postgres._owner()
        self.folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-", dir=_room()))
        self.folder.chmod(0o755)
        self._processes: list[subprocess.Popen[bytes]] = []
        self.programs = postgres._find_programs(18)
        if self._owner is not None:
            if not str(self.programs).startswith("/usr/"):
                self.programs = postgres._copy_programs(self.programs, self.folder, self._owner)
            os.chown(self.folder, self._owner.pw_uid, self._owner.pw_gid)

    def __enter__(self) -> Machines:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            end([process.pid])
            process.wait()
        if kept := os.environ.get("PERDURE_CHAOS_LOGS"):  # a folder, to find out why a test failed
            for log in self.folder.glob("*.log"):
                shutil.copy(log, kept)
        _clear(self.folder)

    def path(self, name: str) -> Path:
        return self.folder / name

    def write(self, name: str, text: str) -> Path:
        """A file of the user who runs the servers, and of nobody else."""
        path = self.path(name)
        path.write_text(text)
        path.chmod(0o600)
        if self._owner is not None:
            os.chown(path, self._owner.pw_uid, self._owner.pw_gid)
        return path

    def run(self, command: Sequence[str | Path], given: str = "") -> str:
        return postgres._run([str(part) for part in command], self._owner, self.folder, given)

    def start(self, name: str, command: Sequence[str | Path], env: dict[str, str] | None = None) -> int:
        """Start a server; what it says goes to a file. Ends when we do, in whatever way."""
        with self.path(f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                [str(part) for part in command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                env={**postgres._environment(), **(env or {})},
                preexec_fn=postgres._end_with_parent(),
                **postgres._as(self._owner),
            )
        self._processes.append(process)
        return process.pid

    def said(self, name: str) -> str:
        path = self.path(f"{name}.log")
        return path.read_text(errors="replace") if path.exists() else ""

    def wait(self, pid: int) -> None:
        """Until a server that was started here has ended."""
        for process in self._processes:
            if process.pid == pid:
                process.wait(PATIENCE_SECONDS)


# -- processes -------------------------------------------------------------------------------------------------


def children_of(pid: int) -> list[int]:
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        return [int(child) for task in tasks for child in (task / "children").read_text().split()]
    return []


def family_of(pid: int) -> list[int]:
    """A process, its children and theirs."""
    family = [pid]
    for member in family:
        family += children_of(member)
    return family


def stop(pids: Iterable[int]) -> list[int]:
    """SIGSTOP to processes and all below them, the oldest first: nobody can start another one meanwhile."""
    stopped: list[int] = []
    for pid in pids:
        queue = [pid]
        while queue:
            one = queue.pop(0)
            with contextlib.suppress(ProcessLookupError):
                os.kill(one, signal.SIGSTOP)
                stopped.append(one)
                queue += children_of(one)
    return stopped


def go_on(pids: Iterable[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def end(pids: Iterable[int]) -> None:
    """SIGKILL to processes and all below them at one moment, as when a machine loses its power."""
    for pid in reversed(stop(pids)):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


# -- what is left behind ---------------------------------------------------------------------------------------


def _room() -> str:
    """In memory if there is room: these tests lose processes, not disks."""
    with contextlib.suppress(OSError):
        space = os.statvfs("/dev/shm")
        if space.f_bavail * space.f_frsize >= 4 << 30:
            return "/dev/shm"
    return str(postgres._temporary())


def remove_leftovers() -> None:
    """What test runs left that were killed themselves."""
    for room in {"/dev/shm", str(postgres._temporary())}:
        for folder in Path(room).glob(f"{PREFIX}*"):
            with contextlib.suppress(ValueError):
                maker = int(folder.name.removeprefix(PREFIX).split("-")[0])
                if not Path(f"/proc/{maker}").exists() and folder.stat().st_uid in _ours():
                    _clear(folder)


def _ours() -> set[int]:
    owner = postgres._owner()
    return {os.geteuid()} | ({owner.pw_uid} if owner is not None else set())


def _clear(folder: Path) -> None:
    """End the servers that still run there, which may be nobody's children any more, and remove the folder."""
    for file in folder.glob("*/postmaster.pid"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            lines = file.read_text().splitlines()
            pid = int(lines[0])
            if str(file.parent) in Path(f"/proc/{pid}/cmdline").read_text():
                end([pid])
            _remove_shared_memory(lines[6].split()[1])
    shutil.rmtree(folder, ignore_errors=True)
    if folder.exists():
        # A process that was just killed may have written a last file.
        time.sleep(0.1)
        shutil.rmtree(folder, ignore_errors=True)


def _remove_shared_memory(number: str) -> None:
    """A server that was killed leaves a segment of 56 bytes, by which the next one would notice its processes."""
    remover: Any = shutil.which("ipcrm")
    if remover:
        subprocess.run([remover, "-m", number], capture_output=True)

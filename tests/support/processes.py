"""Real processes and real kills.

`Process` runs `python -m support.child <module>:<function> args...` with the tests' modules importable. The function
is a plain or async one; it prints lines, which the test reads as signals. `kill()` is SIGKILL.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

TESTS = Path(__file__).parent.parent


class Process:
    """A child process that a test started, and ends at the latest when the test does."""

    def __init__(self, target: str, *args: str, env: dict[str, str] | None = None) -> None:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), *sys.path]), **(env or {})}
        self._process = subprocess.Popen(
            [sys.executable, "-u", "-m", "support.child", target, *args],
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
            cwd=TESTS,
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def line(self, patience: float = 60.0) -> str:
        """The next line it prints; "" when it has ended. A child that says nothing for too long is killed."""
        assert self._process.stdout is not None
        watchdog = threading.Timer(patience, self._process.kill)
        watchdog.start()
        try:
            return self._process.stdout.readline().rstrip("\n")
        finally:
            watchdog.cancel()

    def expect(self, line: str) -> None:
        got = self.line()
        assert got == line, f"expected {line!r} from the child, got {got!r} (exit status {self._process.poll()})"

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def stop_between_writes(self, database: Path) -> None:
        """SIGSTOP while it holds no lock of this SQLite file: others can use the file as long as it is stopped."""
        for _ in range(1000):
            self.signal(signal.SIGSTOP)
            connection = sqlite3.connect(database, timeout=0, isolation_level=None)
            try:
                connection.execute("BEGIN IMMEDIATE")
                return
            except sqlite3.OperationalError:  # stopped in the middle of a write
                self.signal(signal.SIGCONT)
            finally:
                connection.close()
        raise AssertionError("it writes without end")

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def wait(self, timeout: float = 30.0) -> int:
        return self._process.wait(timeout)

    def __enter__(self) -> Process:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        if self._process.stdout is not None:
            self._process.stdout.close()


def first_lines(target: str, *args: str, environments: Sequence[dict[str, str]], patience: float = 60.0) -> list[str]:
    """What a function prints first in several processes, side by side, that differ in their environment."""
    processes = [Process(target, *args, env=environment) for environment in environments]
    try:
        return [process.line(patience) for process in processes]
    finally:
        for process in processes:
            process.__exit__(None, None, None)

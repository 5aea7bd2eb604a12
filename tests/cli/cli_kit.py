"""Running the CLI: in this process for quick tests, in real ones where signals, pipes or other processes matter."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import TracebackType
from typing import Any

from click.testing import CliRunner, Result

from perdure import Engine
from perdure.cli.main import cli
from support.lives import PATIENCE_SECONDS, run_async

APP = str(Path(__file__).parent / "cli_app.py")


def invoke(
    *args: str, store: Path | None = None, stdin: str | None = None, env: dict[str, str] | None = None
) -> Result:
    """One command in this process."""
    chosen = ["--store", str(store)] if store is not None else []
    result = CliRunner().invoke(
        cli, [*args, *chosen], input=stdin, env={"PERDURE_APP": "", "COLUMNS": "160", **(env or {})}
    )
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def invoke_json(*args: str, store: Path | None = None) -> Any:
    """One command with --json: exactly one document on stdout."""
    result = invoke(*args, "--json", store=store)
    return json.loads(result.stdout)


def with_engine(store: Path, act: Callable[[Engine], Awaitable[Any]], *, worker: bool = True) -> Any:
    """Do something to a store from Python."""

    async def main() -> Any:
        async with Engine(store, worker=worker, sweep_interval=0.02) as engine:
            return await act(engine)

    return run_async(main())


class Perdure:
    """`perdure ...` in a process of its own; gone at the latest when the test is."""

    def __init__(self, *args: str, env: dict[str, str] | None = None, cwd: Path | None = None) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-u", "-m", "perdure", *args],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, **(env or {})},
            cwd=cwd,
        )

    def line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().rstrip("\n")

    def until(self, text: str) -> str:
        """Read on to the first line that holds `text`."""
        seen: list[str] = []
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if text in line:
                return line
            seen.append(line)
        raise AssertionError(f"{text!r} was never printed; got {seen}")

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def wait(self) -> int:
        return self._process.wait(PATIENCE_SECONDS)

    def __enter__(self) -> Perdure:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()


def wait_for_file(path: Path) -> None:
    """Until a step of another process has left its mark."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (path.exists() and path.stat().st_size):
        assert time.monotonic() < deadline, f"{path} never came"
        time.sleep(0.005)

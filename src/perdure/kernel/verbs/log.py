"""The log of workflow code: each line once, however often the code is replayed."""

from __future__ import annotations

from typing import Any

from perdure.kernel.commands import Log
from perdure.kernel.verbs.current import current_run

# The standard levels, by number: the kernel writes no logs itself.
DEBUG, INFO, WARNING, ERROR = 10, 20, 30, 40


def _write(level: int, message: str, args: tuple[Any, ...]) -> None:
    run = current_run("log")
    if not run.replaying:
        run.commands.append(Log(level, message, args))


class RunLog:
    """A logger for workflow code: each line is written once, after the turn it belongs to is durable."""

    def debug(self, message: str, *args: Any) -> None:
        _write(DEBUG, message, args)

    def info(self, message: str, *args: Any) -> None:
        _write(INFO, message, args)

    def warning(self, message: str, *args: Any) -> None:
        _write(WARNING, message, args)

    def error(self, message: str, *args: Any) -> None:
        _write(ERROR, message, args)


log = RunLog()

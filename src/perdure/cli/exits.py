"""Every exit code, in one place; `perdure --help` shows them."""

from __future__ import annotations

from enum import IntEnum

import click


class ExitCode(IntEnum):
    """How a command went."""

    OK = 0
    ERROR = 1
    USAGE = 2
    NOT_FOUND = 3
    RUN_ENDED_BADLY = 4
    STILL_RUNNING = 5
    WOULD_BREAK = 6
    STORE_LOST = 7
    NEEDS_MIGRATION = 8
    NEEDS_ATTENTION = 9
    NOT_THE_SAME = 10
    INTERRUPTED = 130
    TERMINATED = 143


MEANING: dict[ExitCode, str] = {
    ExitCode.OK: "done (also: a worker that drained after SIGTERM)",
    ExitCode.ERROR: "perdure refused or could not; the reason is on stderr",
    ExitCode.USAGE: "the command line was not understood",
    ExitCode.NOT_FOUND: "no run has this id",
    ExitCode.RUN_ENDED_BADLY: "the awaited run failed, was cancelled or is parked",
    ExitCode.STILL_RUNNING: "the awaited run had not ended when --timeout was over",
    ExitCode.WOULD_BREAK: "check: at least one open run does not match the code, or --static found something",
    ExitCode.STORE_LOST: "a file of the store was deleted or replaced while it was open; put it back before a restart",
    ExitCode.NEEDS_MIGRATION: "an older perdure wrote the store; --migrate allows what cannot be taken back",
    ExitCode.NEEDS_ATTENTION: "doctor: something needs attention",
    ExitCode.NOT_THE_SAME: "migrate --verify: at least one run differs in the two stores",
    ExitCode.INTERRUPTED: "SIGINT (a worker drains first; a second signal ends it now)",
    ExitCode.TERMINATED: "a second SIGTERM ended a worker before it had drained",
}


def ended(code: ExitCode) -> click.exceptions.Exit:
    """Raise this when everything has been said: click ends the command with the code."""
    return click.exceptions.Exit(int(code))


def epilog() -> str:
    """The table for `--help`. The \\b keeps click from wrapping it."""
    lines = "\n".join(f"  {code.value:>3}  {MEANING[code]}" for code in ExitCode)
    return f"\b\nExit codes:\n{lines}"

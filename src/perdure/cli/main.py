"""The entry point: finds the command, and imports only that one, so that `perdure --help` stays quick."""

from __future__ import annotations

import importlib
import io
import os
import sys
from typing import NoReturn

import click

from perdure.cli.exits import ExitCode, epilog

#: Each command: where it is, and its line in `--help`, written here so that help imports nothing.
COMMANDS: dict[str, tuple[str, str]] = {
    "demo": ("perdure.cli.demo:demo", "Orders, a kill -9 in the middle, and nothing lost; or a fleet."),
    "worker": ("perdure.cli.worker:worker", "Run workflows until SIGTERM or SIGINT."),
    "workers": ("perdure.cli.workers:workers", "List workers: who lives, what they run, what they hold."),
    "start": ("perdure.cli.start:start", "Start a run."),
    "ls": ("perdure.cli.ls:ls", "List runs, newest first."),
    "show": ("perdure.cli.show:show", "Everything about one run."),
    "history": ("perdure.cli.history:history", "The journal of a run, record by record."),
    "send": ("perdure.cli.send:send", "Send an event to a run."),
    "publish": ("perdure.cli.events:publish", "Publish an event to every run that may have it."),
    "events": ("perdure.cli.events:events", "Published events that somebody may still get."),
    "dead-letters": (
        "perdure.cli.dead_letters:dead_letters",
        "Events that did not reach their run: list, replay, remove.",
    ),
    "cancel": ("perdure.cli.control:cancel", "Ask a run to cancel; its code may clean up."),
    "terminate": ("perdure.cli.control:terminate", "End a run now, without its cleanup."),
    "resume": ("perdure.cli.control:resume", "Let a parked or failed run go on."),
    "pause": ("perdure.cli.control:pause", "Stop a run until it is unpaused."),
    "unpause": ("perdure.cli.control:unpause", "Let a paused run go on."),
    "retry": ("perdure.cli.control:retry", "Begin the next attempt of a step now."),
    "why": ("perdure.cli.why:why", "Why a run is not moving."),
    "doctor": ("perdure.cli.doctor:doctor", "Is the store well? Each check with what to do."),
    "check": ("perdure.cli.check:check", "Would the open runs still match the code on disk?"),
    "fork": ("perdure.cli.fork:fork", "A new run from the past of another."),
    "export": ("perdure.cli.transfer:export", "Write a run to a file."),
    "import": ("perdure.cli.transfer:import_", "Create a run from a file."),
    "migrate": ("perdure.cli.migrate:migrate", "Move everything to another store: SQLite to PostgreSQL, and back."),
    "delete": ("perdure.cli.prune:delete", "Remove a run that has ended."),
    "prune": ("perdure.cli.prune:prune", "Remove runs that ended long ago."),
}


class LazyGroup(click.Group):
    """A group that imports a command when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name][0].partition(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.group(cls=LazyGroup, epilog=epilog(), context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="perdure")
def cli() -> None:
    """Durable execution for async Python: run workflows, and look at them."""


def main() -> NoReturn:
    """The `perdure` command."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A terminal that cannot show a character gets its number, instead of the command a traceback.
            stream.reconfigure(errors="backslashreplace")
    try:
        code = _run()
        sys.stdout.flush()
    except BrokenPipeError:  # `perdure ls | head`: nobody reads on, and the interpreter must not complain at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = ExitCode.OK
    sys.exit(int(code))


def _run() -> int:
    try:
        result = cli.main(prog_name="perdure", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return ExitCode.INTERRUPTED
    return result if isinstance(result, int) else ExitCode.OK

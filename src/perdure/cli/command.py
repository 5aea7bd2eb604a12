"""What every command shares: its options, and one place where errors become a line and an exit code."""

from __future__ import annotations

import asyncio
import functools
import os
import sys
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec, TypeVar

import click

from perdure import limits
from perdure.cli.exits import ExitCode, ended
from perdure.cli.output import complain, print_json
from perdure.cli.text import lines
from perdure.errors import (
    PerdureError,
    RunCancelled,
    RunFailed,
    RunNotFound,
    RunParked,
    SchemaTooOld,
    StoreLost,
)

P = ParamSpec("P")
F = TypeVar("F", bound=Callable[..., Any])

DEFAULT_STORE = "perdure.db"
#: Where `--migrate` is in the context of a command.
MIGRATE = "perdure.migrate"


def store_option(function: F) -> F:
    return click.option(
        "--store",
        metavar="URL",
        envvar="PERDURE_STORE",
        default=DEFAULT_STORE,
        show_default=True,
        show_envvar=True,
        help="The store: a path, sqlite:///path, or postgresql://user@host/database.",
    )(function)


def changed_store_option(function: F) -> F:
    """For commands that change something: `session` asks the context whether a store of an older schema may be."""
    migrate = click.option(
        "--migrate",
        is_flag=True,
        envvar="PERDURE_MIGRATE",
        show_envvar=True,
        expose_value=False,
        callback=_remember_migrate,
        help="Bring a store of an older perdure to the schema of this one.",
    )
    return store_option(migrate(function))


def _remember_migrate(context: click.Context, _: click.Parameter, value: bool) -> None:
    context.meta[MIGRATE] = value


def app_option(function: F) -> F:
    return click.option(
        "--app",
        "apps",
        metavar="MODULE[:ATTR]|FILE.py",
        multiple=True,
        callback=_with_environment,
        help="Import workflows from here; may be repeated.  [env var: PERDURE_APP, separated by commas]",
    )(function)


def _with_environment(_: click.Context, __: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
    return value or tuple(one.strip() for one in os.environ.get("PERDURE_APP", "").split(",") if one.strip())


def json_option(function: F) -> F:
    return click.option("--json", "as_json", is_flag=True, help="Machine-readable output on stdout.")(function)


def run_id_argument(function: F) -> F:
    return click.argument("run_id", metavar="ID")(function)


def event_options(function: F) -> F:
    """An event from the command line: its name, what it says, and the key that makes it count once."""
    for option in (
        click.option("--key", help="A second event with the same key is ignored."),
        click.option(
            "--data", default="{}", metavar="JSON", help="The event's fields; '-' reads standard input.  [default: {}]"
        ),
        app_option,
        changed_store_option,
        click.argument("event_name", metavar="EVENT"),
    ):
        function = option(function)
    return function


def limit_option(function: F) -> F:
    return click.option("--limit", default=50, show_default=True, type=click.IntRange(1, limits.PAGE_SIZE_MAX))(
        function
    )


def paged_events(function: F) -> F:
    """Which part of a long list of events is shown."""
    for option in (
        click.option("--after", default=0, metavar="NUMBER", help="Page on: the last number of the page before."),
        limit_option,
        click.option("--type", "event_type", metavar="EVENT", help="Only events of this type."),
    ):
        function = option(function)
    return function


def durable(function: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Run an async command, and turn what perdure raises into one line and an exit code."""

    @functools.wraps(function)
    def command(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            asyncio.run(function(*args, **kwargs))
        except PerdureError as error:
            report(error, as_json=bool(kwargs.get("as_json")))
            raise ended(exit_code(error)) from None

    return command


def exit_code(error: PerdureError) -> ExitCode:
    match error:
        case RunNotFound():
            return ExitCode.NOT_FOUND
        case RunFailed() | RunCancelled() | RunParked():
            return ExitCode.RUN_ENDED_BADLY
        case StoreLost():
            return ExitCode.STORE_LOST
        case SchemaTooOld():
            return ExitCode.NEEDS_MIGRATION
        case _:
            return ExitCode.ERROR


def report(error: PerdureError, *, as_json: bool) -> None:
    """`ErrorName: message [P-xxx]` on stderr, or one JSON document on stdout. Never a traceback."""
    name = type(error).__name__
    if as_json:
        print_json({"error": name, "message": error.message, "code": error.code})
    else:
        complain(lines(f"{name}: {error}"))


def read_argument(text: str) -> str:
    """`-` reads standard input, so that long or secret data need not stand on the command line."""
    return sys.stdin.read() if text == "-" else text

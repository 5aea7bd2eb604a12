"""`perdure worker`: runs workflows until it is told to stop, in this process or in several."""

from __future__ import annotations

import os
from typing import Any

import click

from perdure import limits
from perdure.cli.command import MIGRATE, app_option, changed_store_option, durable, json_option


class _Processes(click.ParamType):  # type: ignore[type-arg]
    """A number of processes. Others are refused with what the number means."""

    name = "integer"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            number = int(value)
        except ValueError:
            number = 0
        if 1 <= number <= limits.WORKER_PROCESSES_MAX:
            return number
        self.fail(
            f"{value!r} is not a number of processes from 1 to {limits.WORKER_PROCESSES_MAX}. Each is a worker of its "
            "own, with a Python, an event loop and connections of its own; one for each core is a good start, and this "
            f"machine has {os.cpu_count()}.",
            param,
            ctx,
        )


@click.command()
@changed_store_option
@app_option
@click.option(
    "--processes",
    type=_Processes(),
    metavar="N",
    help="Run N workers, each in a process of its own: those that die are started again, SIGHUP replaces one after "
    "another by a process that loads the code anew.",
)
@click.option(
    "--grace", default=limits.SHUTDOWN_GRACE_SECONDS_DEFAULT, show_default=True, type=click.FloatRange(0),
    metavar="SECONDS",
    help="What running steps get to finish after the first signal.",
)  # fmt: skip
@click.option("--name", help="A label for people; with --processes a number is added.  [default: host and pid]")
@click.option("-v", "--verbose", is_flag=True, help="Also log what only developers of perdure read.")
@json_option
def worker(
    store: str,
    apps: tuple[str, ...],
    processes: int | None,
    grace: float,
    name: str | None,
    verbose: bool,
    as_json: bool,
) -> None:
    """Run workflows until SIGTERM or SIGINT.

    The first signal drains: nothing new begins, running steps get --grace to finish, runs are given back.
    Then the exit code is 0 after SIGTERM and 130 after SIGINT. A second signal ends the process at once
    (143 or 130); nothing recorded is lost. With --json: one JSON document a line.

    A worker whose database, or its -wal or -shm file, is deleted or replaced under it ends with exit code 7.
    """
    if processes is None:
        _serve(store, apps, grace, name, verbose=verbose, as_json=as_json)
        return
    context = click.get_current_context()
    code = _supervise(
        store, apps, processes, grace, name, verbose=verbose, as_json=as_json, migrate=bool(context.meta.get(MIGRATE))
    )
    if code:
        raise click.exceptions.Exit(code)


@durable
async def _serve(
    store: str, apps: tuple[str, ...], grace: float, name: str | None, *, verbose: bool, as_json: bool
) -> None:
    from perdure.cli.serving import serve  # the supervisor needs neither an engine nor its memory

    await serve(store, apps, grace, name, verbose=verbose, as_json=as_json)


def _supervise(
    store: str, apps: tuple[str, ...], processes: int, grace: float, name: str | None, *, verbose: bool, as_json: bool,
    migrate: bool,
) -> int:  # fmt: skip
    from perdure.cli.relay import Relay
    from perdure.cli.supervised import leaving_seconds
    from perdure.cli.supervisor import Supervisor

    def arguments_of(number: int) -> list[str]:
        given = ["--grace", repr(grace), *[part for app in apps for part in ("--app", app)]]
        given += ["--name", f"{name}-{number}"] if name is not None else []
        return [*given, *(["--verbose"] if verbose else []), *(["--json"] if as_json else [])]

    # Not on the command line, which every user of the machine may read: the URL may hold a password.
    environment = {"PERDURE_STORE": store, **({"PERDURE_MIGRATE": "1"} if migrate else {})}
    return Supervisor(processes, arguments_of, environment, leaving_seconds(grace), Relay(as_json=as_json)).run()

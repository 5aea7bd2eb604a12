"""`perdure start`: a run from the command line."""

from __future__ import annotations

from typing import Any

import click

from perdure.authoring.workflow import Invocation
from perdure.cli import output
from perdure.cli.apps import import_apps
from perdure.cli.arguments import arguments_of, find_workflow
from perdure.cli.command import (
    app_option,
    changed_store_option,
    durable,
    exit_code,
    json_option,
    read_argument,
    report,
)
from perdure.cli.exits import ExitCode, ended
from perdure.cli.session import session
from perdure.cli.text import identity, value_text
from perdure.engine.engine import Engine
from perdure.errors import RunCancelled, RunFailed, RunParked


@click.command()
@click.argument("workflow")
@click.argument("pairs", metavar="[NAME=VALUE]...", nargs=-1)
@changed_store_option
@app_option
@click.option(
    "--id",
    "run_id",
    metavar="ID",
    help="The run's id; the same id, workflow and input is the same run.  [default: random]",
)
@click.option("--version", help="The workflow's version.  [default: the newest]")
@click.option("--input", "document", metavar="JSON", help="All arguments as one JSON object; '-' reads standard input.")
@click.option("--wait", is_flag=True, help="Wait for the end and print the result.")
@click.option("--timeout", type=click.FloatRange(0), metavar="SECONDS", help="Wait at most this long (with --wait).")
@click.option("--work", is_flag=True, help="Also run a worker here while waiting (implies --wait).")
@json_option
@durable
async def start(
    workflow: str, pairs: tuple[str, ...], store: str, apps: tuple[str, ...], run_id: str | None,
    version: str | None, document: str | None, wait: bool, timeout: float | None, work: bool, as_json: bool,
) -> None:  # fmt: skip
    """Start a run and print its id. It is durable when this returns; a worker runs it.

    Arguments: NAME=VALUE, where VALUE is read as JSON if the parameter takes it so, else as text;
    or all of them with --input '{"order_id": "o-1"}'.
    """
    if not apps:
        raise click.UsageError("start needs the code: --app module, --app file.py, or PERDURE_APP.")
    import_apps(apps)
    spec = find_workflow(workflow, version)
    data = arguments_of(spec, pairs, read_argument(document) if document is not None else None)
    async with session(store, create=True, memory=work, worker=work) as opened:
        handle = await opened.start(Invocation[Any](spec, data, "cli"), id=run_id)
        told = {"id": handle.id, "workflow": spec.name, "version": spec.version}
        if not as_json:
            output.print_line(identity(handle.id))
        if wait or work:
            await _await_end(opened, told, timeout, as_json)
        elif as_json:
            output.print_json(told)


async def _await_end(opened: Engine, told: dict[str, Any], timeout: float | None, as_json: bool) -> None:
    run_id = told["id"]
    try:
        result = await opened.result_json(run_id, timeout)
    except TimeoutError:
        _tell(told, {"status": (await opened.status(run_id)).status, "timeout": timeout}, as_json)
        if not as_json:
            output.complain(f"{identity(run_id)} had not ended after {timeout:g} s; it goes on.")
        raise ended(ExitCode.STILL_RUNNING) from None
    except (RunFailed, RunCancelled, RunParked) as error:
        status = (await opened.status(run_id)).status
        _tell(
            told,
            {"status": status, "error": type(error).__name__, "message": error.message, "code": error.code},
            as_json,
        )
        if not as_json:
            report(error, as_json=False)
        raise ended(exit_code(error)) from None
    _tell(told, {"status": "completed", "result": result}, as_json)
    if not as_json:
        output.print_line(value_text(result))


def _tell(told: dict[str, Any], more: dict[str, Any], as_json: bool) -> None:
    if as_json:
        output.print_json({**told, **more})

"""`perdure export` and `import`: a run as a file."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from perdure.cli import output
from perdure.cli.command import changed_store_option, durable, json_option, run_id_argument, store_option
from perdure.cli.session import look, session
from perdure.cli.text import identity
from perdure.errors import BadArgument


@click.command()
@run_id_argument
@store_option
@click.option("--output", "-o", "target", metavar="FILE", help="Where to; `-` for standard output.")
@click.option("--force", is_flag=True, help="Overwrite the file.")
@json_option
@durable
async def export(run_id: str, store: str, target: str | None, force: bool, as_json: bool) -> None:
    """Write a run, with its journals and unread events, to one JSON file. The run is not changed.

    The file holds everything the run was given and returned: keep it as you keep the database.
    """
    path = target or f"{run_id.replace('/', '_')}.json"
    async with look(store) as opened:
        data = await opened.admin.export_run(run_id)
    if path == "-":
        sys.stdout.write(data.decode())
        return
    _write(path, data, force=force)
    if as_json:
        output.print_json({"id": run_id, "file": path, "bytes": len(data)})
    else:
        output.print_line(f"{identity(run_id)}: {identity(path)} ({len(data):,} bytes)")


def _write(path: str, data: bytes, *, force: bool) -> None:
    """Only for this user: payloads are nobody else's business."""
    flags = os.O_WRONLY | os.O_CREAT | (os.O_TRUNC if force else os.O_EXCL)
    try:
        descriptor = os.open(path, flags, 0o600)
    except FileExistsError:
        raise BadArgument(f"{path} exists. Choose another --output, or overwrite it with --force.") from None
    except OSError as error:
        raise BadArgument(f"{path} cannot be written: {error.strerror}.") from None
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)


@click.command(name="import")
@click.argument("file")
@changed_store_option
@click.option("--id", "run_id", metavar="ID", help="Another id than the exported run had.")
@click.option("--run", is_flag=True, help="Let an open run go on at once, instead of paused.")
@json_option
@durable
async def import_(file: str, store: str, run_id: str | None, run: bool, as_json: bool) -> None:
    """Create a run from an exported FILE (`-`: standard input). An open one is paused: its original may still run."""
    data = _read(file)
    source = "standard input" if file == "-" else os.path.basename(file)
    async with session(store, create=True) as opened:
        made = await opened.admin.import_run(data, id=run_id, source=source, paused=not run)
        view = await opened.status(made)
    if as_json:
        output.print_json({"id": made, "status": view.status})
    else:
        output.print_line(f"{identity(made)}: imported (status {view.status})")


def _read(file: str) -> bytes:
    try:
        return sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as error:
        raise BadArgument(f"{file} cannot be read: {error.strerror}.") from None

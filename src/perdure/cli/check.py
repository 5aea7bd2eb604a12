"""`perdure check`: would the open runs still replay against the code on disk? For a deploy, before it."""

from __future__ import annotations

import sys
from collections import Counter

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from perdure.admin.check import Checked
from perdure.authoring.registry import registry
from perdure.authoring.workflow import Workflow
from perdure.cli import output
from perdure.cli.apps import import_apps
from perdure.cli.command import app_option, durable, json_option, store_option
from perdure.cli.exits import ExitCode, ended
from perdure.cli.session import look
from perdure.cli.text import identity, lines
from perdure.engine.engine import Engine
from perdure.errors import BadArgument

#: How each verdict counts, in the words of the summary.
_WORDS = {
    "diverged": "will break",
    "undecodable": "cannot be decoded",
    "broken": "stop with an error",
    "unknown": "are of a workflow or version that this code does not have",
}


@click.command()
@store_option
@app_option
@click.option("--workflow", help="Only runs of this workflow.")
@click.option("--static", is_flag=True, help="Read the source of the workflows instead; no store is needed.")
@json_option
@durable
async def check(store: str, apps: tuple[str, ...], workflow: str | None, static: bool, as_json: bool) -> None:
    """Replay every open run against the code given with --app, without writing anything.

    Ends with exit code 6 if one would be parked, and names it with both source lines. With --static, looks in the
    source of the workflows and their helpers for what a replay would not repeat (clocks, randomness, I/O, the order of
    sets, globals that change), and ends with exit code 6 if there is any.
    """
    if not apps:
        raise BadArgument("check needs the code to check against: give it with --app, or PERDURE_APP.")
    import_apps(apps)
    if static:
        if _read_source(workflow, as_json=as_json):
            raise ended(ExitCode.WOULD_BREAK)
        return
    async with look(store) as opened:
        bad, counts, warnings = await _look(opened, workflow, quiet=as_json)
    if as_json:
        output.print_json({"fine": counts["fine"], "broken": bad, "warnings": warnings})
    else:
        _print(bad, counts, warnings)
    if bad:
        raise ended(ExitCode.WOULD_BREAK)


def _read_source(workflow: str | None, *, as_json: bool) -> bool:
    """Whether the lint found anything."""
    from perdure.authoring.lint import lint

    definitions = [one for one in registry.definitions() if isinstance(one, Workflow)]
    chosen = [one for one in definitions if workflow in (None, one.name)]
    if workflow is not None and not chosen:
        registry.latest(workflow)  # says which names there are
    found = [finding for one in chosen for finding in lint(one)]
    if as_json:
        output.print_json({"workflows": len(chosen), "findings": [finding._asdict() for finding in found]})
    else:
        for finding in found:
            output.print_line(lines(str(finding)))
        output.print_line(f"{len(chosen)} workflows read, {len(found)} findings")
    return bool(found)


async def _look(
    opened: Engine, workflow: str | None, *, quiet: bool
) -> tuple[list[Checked], Counter[str], dict[str, list[str]]]:
    counts: Counter[str] = Counter()
    bad: list[Checked] = []
    warnings: dict[str, list[str]] = {}
    total = sum(count for status, count in (await opened.admin.counts()).items() if not status.terminal)
    with _progress(quiet) as progress:
        task = progress.add_task("replaying", total=total if workflow is None else None)
        async for run in opened.admin.check(workflow):
            progress.advance(task)
            counts[run.verdict] += 1
            if not run.is_fine:
                bad.append(run)
            if run.warnings:
                warnings[run.id] = list(run.warnings)
    return bad, counts, warnings


def _progress(quiet: bool) -> Progress:
    """On a terminal only, and on stderr: what is piped on is the result."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    hidden = quiet or not sys.stderr.isatty()
    return Progress(*columns, console=Console(stderr=True), transient=True, disable=hidden)


def _print(bad: list[Checked], counts: Counter[str], warnings: dict[str, list[str]]) -> None:
    for run in bad:
        output.print_line(f"{identity(run.id)} ({identity(run.workflow)} {identity(run.version)}, {run.status})")
        output.print_line(f"  {lines(run.text).replace(chr(10), chr(10) + '  ')}")
    for run_id, messages in warnings.items():
        for message in messages:
            output.print_line(f"{identity(run_id)}: warning: {lines(message)}")
    parts = [f"{counts[kind]} {words}" for kind, words in _WORDS.items() if counts[kind]]
    output.print_line(", ".join([f"{counts['fine']} fine", *parts]))

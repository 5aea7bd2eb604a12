"""`perdure doctor`: is the store well, and does somebody work on what is in it?"""

from __future__ import annotations

from collections import Counter

import click
from rich.text import Text

from perdure.admin.admin import Admin
from perdure.admin.doctor import Diagnosis
from perdure.cli import output
from perdure.cli.command import durable, json_option, store_option
from perdure.cli.exits import ExitCode, ended
from perdure.cli.session import find_store
from perdure.cli.text import lines
from perdure.store.health import Level

_STYLES = {Level.OK: "green", Level.ATTENTION: "bold yellow", Level.PROBLEM: "bold red"}


@click.command()
@store_option
@json_option
@durable
async def doctor(store: str, as_json: bool) -> None:
    """Examine a store: each check with what was found, and what to do.

    Ends with exit code 0 if all is well, and with 9 if something needs attention. Writes nothing, needs a user who may
    read, and takes a store that cannot be opened: that is a finding. Each check ends soon, and one that fails stops
    no other.
    """
    diagnosis = await Admin(find_store(store, create=False, look=True)).doctor()
    if as_json:
        output.print_json(diagnosis)
    else:
        _print(diagnosis)
    if diagnosis.level is not Level.OK:
        raise ended(ExitCode.NEEDS_ATTENTION)


def _print(diagnosis: Diagnosis) -> None:
    table = output.table("", "check", "what was found, and what to do")
    for column in table.columns[:2]:
        column.no_wrap = True
    for one in diagnosis.findings:
        cell = Text(lines(one.text))
        if one.advice:
            cell.append(f"\n{lines(one.advice)}", style="bold" if one.level is not Level.OK else "dim")
        table.add_row(Text(one.level.value, style=_STYLES[one.level]), Text(one.check), cell)
    console = output.console()
    console.print(table)
    console.print(Text(f"{lines(diagnosis.store)}: {_summary(diagnosis)}"))


def _summary(diagnosis: Diagnosis) -> str:
    counts = Counter(one.level for one in diagnosis.findings)
    if diagnosis.level is Level.OK:
        return f"all is well ({counts[Level.OK]} checks)"
    parts = []
    if counts[Level.PROBLEM]:
        parts.append(f"{counts[Level.PROBLEM]} problem{'s' if counts[Level.PROBLEM] > 1 else ''}")
    if counts[Level.ATTENTION]:
        parts.append(f"{counts[Level.ATTENTION]} to look after")
    return f"{', '.join(parts)}, {counts[Level.OK]} ok"

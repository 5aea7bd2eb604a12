"""The pages about fleets are true: what they say to type is typed, on a real server."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from perdure import Engine, event, receive, workflow
from perdure.errors import StoreUnusable
from support.lives import run_async
from support.pages import ROOT, part_of
from support.postgres import server

FIRST_FLEET = ROOT / "docs" / "how-to" / "first-fleet.md"
RUN_ON_POSTGRESQL = ROOT / "docs" / "how-to" / "run-on-postgresql.md"


@event
@dataclass
class Paged:
    pass


@workflow
async def a_page_is_read() -> str:
    await receive(Paged)
    return "read"


def test_the_first_fleet_goes_on_after_its_kill(tmp_path: Path) -> None:
    """Every line of the page, in one shell; only the URL is another one, and leases are shorter."""
    (tmp_path / "shop.py").write_text(part_of(FIRST_FLEET, "shop.py"))
    script = part_of(FIRST_FLEET, "fleet.sh")
    url = server().url(server().fresh_schema(recycle=False))
    written = re.findall(r"^export PERDURE_STORE=(\S+)$", script, re.M)
    assert len(written) == 1
    done = subprocess.run(
        ["bash", "-eu", "-c", script.replace(written[0], f"'{url}'")],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        env={
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PERDURE_LEASE": "3",
        },
    )
    logs = "".join(path.read_text() for path in tmp_path.glob("*.log"))
    assert done.returncode == 0, done.stdout + done.stderr + logs
    charged = dict(re.findall(r"(o-\d) charged by process (\d+)\"", done.stdout))
    packed = dict(re.findall(r"(o-\d) packed by process (\d+)\"", done.stdout))
    assert sorted(charged) == sorted(packed) == ["o-1", "o-2", "o-3", "o-4"]
    assert len(set(packed.values())) == 1, "worker two packed all of them: worker one was killed before its first end"
    assert "drain" in (tmp_path / "two.log").read_text()


def statements(file: str, names: dict[str, str]) -> str:
    """A block of the page, with names that this server has."""
    text = part_of(RUN_ON_POSTGRESQL, file)
    for name, other in names.items():
        text = re.sub(rf"\b{name}\b", other, text)
    return text


def test_the_roles_of_the_page_are_enough() -> None:
    """The owner makes the tables, the application works, the reader only looks."""
    found = server()
    if found.version is None:
        pytest.skip("the server that was given may not let us make roles")
    schema = found.fresh_schema(recycle=False)
    names = {"perdure": schema, "shop": f"{schema}_o", "shop_app": f"{schema}_a", "shop_reader": f"{schema}_r"}

    def url(role: str) -> str:
        return re.sub(r"//[^@]+@", f"//{role}:change-me@", found.url(schema))

    async def main() -> None:
        found.execute(statements("owner.sql", names))
        for role in (names["shop_app"], names["shop_reader"]):
            found.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'change-me'")
        async with Engine(url(names["shop"]), worker=False):
            pass
        for file in ("application.sql", "reader.sql"):
            found.execute(f"SET ROLE {names['shop']}; {statements(file, names)} RESET ROLE")
        async with Engine(url(names["shop_app"])) as engine:
            run = await engine.start(a_page_is_read(), id="r")
            await engine.publish(Paged())
            await run.send(Paged())
            assert await run.result() == "read"
        async with Engine(url(names["shop_reader"]), worker=False) as looking:
            assert [view.id for view in await looking.list()] == ["r"]
            assert [entry.kind for entry in await looking.admin.history("r")][-1] == "completed"
            with pytest.raises(StoreUnusable, match="GRANT"):
                await looking.start(a_page_is_read(), id="not allowed")

    try:
        run_async(main(), patience=60)
    finally:
        for role in (names["shop_app"], names["shop_reader"], names["shop"]):
            found.execute(f"DROP OWNED BY {role} CASCADE; DROP ROLE {role}")


def test_what_to_watch_can_be_asked() -> None:
    """Each statement of the page is one that PostgreSQL answers."""
    schema = server().fresh_schema()
    asked = [text for text in statements("watch.sql", {"perdure": schema}).split(";") if text.strip()]
    answers = [server().execute(text).fetchall() for text in asked]
    assert len(answers) == 2
    assert {row[0] for row in answers[1]} >= {"runs", "journal", "inbox"}

"""What is wrong about a PostgreSQL store and found out before anybody connects: each message says what to do."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from perdure import Engine
from perdure.engine.settings import load_settings
from perdure.errors import BadArgument, PerdureError, StoreUnusable
from perdure.store import open_store
from perdure.store.postgres.url import parse

ODD = "a!b@c$d()e*_,/:;=?@ff[]22"


def engine(url: str, **settings: Any) -> Callable[[], object]:
    return lambda: Engine(url, worker=False, **settings)


def with_environment(**variables: str) -> Callable[[], object]:
    return lambda: load_settings({}, variables)


URL = "postgresql://me:hunter2@db/shop"
#: What is done, the class and code of the error, and what its text says.
WRONG: dict[str, tuple[Callable[[], object], type[PerdureError], str, tuple[str, ...]]] = {
    "unknown option": (engine(f"{URL}?shcema=x"), BadArgument, "P-230", ("'shcema'", "Did you mean 'schema'?")),
    "sslmode typo": (engine(f"{URL}?sslmode=requird"), BadArgument, "P-230", ("'sslmode'", "'require'", "verify-full")),
    "password not encoded": (
        engine("postgresql://me:hunter2@db/sh@op"), BadArgument, "P-230",
        ("can be read in more than one way", "percent-encode", "@ is %40", "urllib.parse.quote(password, safe='')"),
    ),
    "schema of the server": (engine(f"{URL}?schema=pg_x"), BadArgument, "P-230", ("reserved", "Choose another name")),
    "schema too long": (engine(f"{URL}?schema={'x' * 64}"), BadArgument, "P-230", ("63 bytes", "shorter name")),
    "lease 0": (engine(URL, lease=0), BadArgument, "P-230", ("lease is 1 to 3600 seconds, not 0",)),
    "lease NaN": (engine(URL, lease=float("nan")), BadArgument, "P-230", ("lease is 1 to 3600 seconds, not nan",)),
    "lease below three heartbeats": (
        engine(URL, lease=5, heartbeat=2), BadArgument, "P-230",
        ("lease of 5 s is less than three heartbeats of 2 s", "at most a third of it"),
    ),
    "heartbeat 0": (engine(URL, heartbeat=0), BadArgument, "P-230", ("three heartbeats of 0 s",)),
    "lease in the environment": (
        with_environment(PERDURE_LEASE="0"), BadArgument, "P-230",
        ("lease is 1 to 3600 seconds, not 0", "It was set by the environment variable PERDURE_LEASE."),
    ),
    "no number in the environment": (
        with_environment(PERDURE_HEARTBEAT="often"), BadArgument, "P-230",
        ("heartbeat", "It was set by the environment variable PERDURE_HEARTBEAT.", "Known: residents_max"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_a_mistake_is_refused_with_what_to_do(name: str) -> None:
    """FAULTS F16: before anything is opened, with a stable code; FAULTS S10: never with the password."""
    do, kind, code, texts = WRONG[name]
    with pytest.raises(kind) as caught:
        do()
    said = str(caught.value)
    assert said.endswith(f"[{code}]")
    assert [text for text in texts if text not in said] == [], said
    assert "hunter" not in said


def test_an_argument_hides_what_is_wrong_elsewhere() -> None:
    """Only what counts is judged, and only the place it came from is named."""
    assert load_settings({"lease": 20}, {"PERDURE_LEASE": "0"}).lease == 20
    with pytest.raises(BadArgument) as caught:
        load_settings({"lease": 0}, {"PERDURE_LEASE": "20"})
    assert "environment" not in str(caught.value)


def test_a_setting_of_pyproject_is_named_as_such(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.perdure]\nlease = 0\n")
    with pytest.raises(BadArgument, match=r"It was set by \[tool.perdure\] of pyproject.toml"):
        load_settings({}, {}, tmp_path)


def test_a_password_with_every_odd_character() -> None:
    """Percent-encoded it is what it is, and given raw the same, for it can be read in one way only."""
    assert parse(f"postgresql://me:{quote(ODD, safe='')}@db/shop").parameters["password"] == ODD
    raw = parse(f"postgresql://me:{ODD}@db/shop")
    assert (raw.parameters["password"], raw.parameters["host"]) == (ODD, "db")
    assert "ff[]22" not in raw.shown


def test_the_extra_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)  # pyright: ignore
    with pytest.raises(StoreUnusable, match=r"needs psycopg.*pip install 'perdure\[postgres\]'.*\[P-302\]$"):
        open_store(URL)

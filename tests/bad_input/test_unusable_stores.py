"""Stores that cannot be used: a typed error that names the path and the fix, and the files as they were."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from perdure import Engine, workflow
from perdure.errors import BadArgument, SchemaTooNew, StoreError, StoreUnusable
from support.lives import run_async


@workflow
async def never_starts() -> None: ...


def opening(url: Any) -> None:
    async def main() -> None:
        async with Engine(url):
            pass

    run_async(main())


def files(directory: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def test_missing_directory(tmp_path: Path) -> None:
    """The issue's bad input, FAULTS O13: it is not created by guess."""
    path = tmp_path / "missing" / "orders.db"
    with pytest.raises(StoreUnusable, match="does not exist") as caught:
        opening(path)
    assert str(path) in str(caught.value)
    assert not path.parent.exists()


def test_directory_as_path(tmp_path: Path) -> None:
    """A path that is a directory is refused, and nothing is written into it. FAULTS O13."""
    with pytest.raises(StoreUnusable, match="is a directory"):
        opening(tmp_path)
    assert files(tmp_path) == {}


@pytest.fixture
def as_nobody() -> Iterator[Path]:
    """A directory that the current user may not write to; root becomes somebody else for a moment."""
    directory = Path(tempfile.mkdtemp(prefix="perdure-read-only-"))
    directory.chmod(0o555)
    root = os.getuid() == 0
    if root:
        os.setresuid(65534, 65534, 0)
    try:
        yield directory
    finally:
        if root:
            os.setresuid(0, 0, 0)
        directory.chmod(0o755)
        for file in directory.iterdir():
            file.unlink()
        directory.rmdir()


def test_read_only_directory(as_nobody: Path) -> None:
    """The issue's bad input, FAULTS O13: names the path and the permission."""
    path = as_nobody / "orders.db"
    with pytest.raises(StoreUnusable) as caught:
        opening(path)
    assert str(as_nobody) in str(caught.value)
    assert "P-302" in str(caught.value)
    assert list(as_nobody.iterdir()) == []


def test_read_only_file(tmp_path: Path, as_nobody: Path) -> None:
    """FAULTS O13: a file of somebody else."""
    path = as_nobody / "orders.db"
    root = os.getresuid()[2] == 0 and os.getuid() != 0
    if root:
        os.setresuid(0, 0, 0)
    as_nobody.chmod(0o755)
    path.write_bytes(b"")
    path.chmod(0o444)
    if root:
        os.setresuid(65534, 65534, 0)
    else:
        as_nobody.chmod(0o555)
    with pytest.raises(StoreUnusable) as caught:
        opening(path)
    assert str(path) in str(caught.value)
    assert path.read_bytes() == b""


def test_place_that_holds_no_files() -> None:
    """FAULTS O13: a directory where nobody, not even root, can create one."""
    with pytest.raises(StoreUnusable, match=r"/proc/perdure\.db"):
        opening("/proc/perdure.db")


def test_path_that_is_not_a_regular_file(tmp_path: Path) -> None:
    """FAULTS O13: a pipe (or a device) is told from a file before SQLite tries to write beside it."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    with pytest.raises(StoreUnusable, match="pipe"):
        opening(path)
    assert [file.name for file in tmp_path.iterdir()] == ["pipe"]


def test_newer_schema(tmp_path: Path) -> None:
    """The issue's bad input, FAULTS O7: says both versions and leaves the file alone."""
    path = tmp_path / "orders.db"
    opening(path)
    connection = apsw.Connection(str(path))
    version = connection.pragma("user_version")
    connection.pragma("user_version", 99)
    connection.pragma("wal_checkpoint", "TRUNCATE")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(SchemaTooNew, match=rf"schema 99.*up to {version}"):
        opening(path)
    assert path.read_bytes() == before


def test_file_of_another_program(tmp_path: Path) -> None:
    """FAULTS O13: a SQLite file that is not ours, and one that is no SQLite file at all."""
    foreign = tmp_path / "foreign.db"
    connection = apsw.Connection(str(foreign))
    connection.execute("CREATE TABLE notes(text)")
    connection.close()
    garbage = tmp_path / "garbage.db"
    garbage.write_bytes(b"this is not a database" * 100)
    before = foreign.read_bytes(), garbage.read_bytes()
    for path in (foreign, garbage):
        with pytest.raises(StoreUnusable) as caught:
            opening(path)
        assert str(path) in str(caught.value)
    assert (foreign.read_bytes(), garbage.read_bytes()) == before


@pytest.mark.parametrize(
    "url",
    [
        "",
        "   ",
        "a\0b",
        "mysql://localhost/x",
        "sqlite://relative.db",
        "sqlite:///x.db?durabilty=full",
        "sqlite:///x.db?durability=maybe",
    ],
)
def test_bad_urls(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """FAULTS F16: refused when the engine is made, listing the forms."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadArgument):
        opening(url)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("url", [None, 42, ["orders.db"]], ids=repr)
def test_things_that_are_no_store(url: Any) -> None:
    """FAULTS F16: a typed error at once, not an AttributeError at the first use."""
    with pytest.raises(BadArgument):
        opening(url)


def test_passwords_are_not_shown() -> None:
    """An error names the store without the password in its address. FAULTS F16 and S10."""
    with pytest.raises(StoreError) as caught:
        opening("postgresql://user:s3cr%40t@127.0.0.1:1/db")
    assert "s3cr" not in str(caught.value)


def test_engine_that_failed_to_open_can_be_left_and_the_path_used_later(tmp_path: Path) -> None:
    """FAULTS O13: after the fix the same path works; nothing of the failed try is in the way."""
    path = tmp_path / "later" / "orders.db"

    async def main() -> None:
        engine = Engine(path)
        with pytest.raises(StoreUnusable):
            await engine.open()
        await engine.close()
        path.parent.mkdir()
        async with Engine(path) as engine:
            await (await engine.start(never_starts())).result()

    run_async(main())
    assert stat.S_IMODE(path.stat().st_mode) == 0o600

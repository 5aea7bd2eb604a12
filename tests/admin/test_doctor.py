"""`perdure doctor` on a file and in memory: what is wrong with the file, its disk and what is in it, and what to do."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import apsw
import pytest

from cli.cli_kit import invoke
from perdure import Engine, limits
from perdure.admin.admin import Admin
from perdure.admin.doctor import Diagnosis, doctor
from perdure.store.health import Finding, Level, duration_text, size_text
from perdure.store.memory import MemoryStore
from perdure.store.model import WorkerInfo
from perdure.store.sqlite import SQLiteStore, health, health_disk
from perdure.store.sqlite.liveness import lock_path
from stores.store_kit import create
from support.lives import run_async


@pytest.fixture(autouse=True)
def on_a_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """As if the tests' files were on a plain disk, wherever they are."""
    return mounted(tmp_path, "ext4", monkeypatch)


def mounted(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    mounts = tmp_path / "mounts"
    mounts.write_text(
        "22 1 0:21 / / rw - ext4 /dev/vda1 rw\n"
        f"23 22 0:22 / {tmp_path.resolve()} rw,nosuid shared:3 - {kind} there rw\n"
        f"24 22 0:23 / {tmp_path.resolve()}-more rw - nfs4 other:/x rw\n"
    )
    monkeypatch.setattr(health_disk, "MOUNTS", mounts)
    return mounts


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A store with one run, which nobody has."""

    async def main() -> None:
        store = SQLiteStore(tmp_path / "orders.db")
        await store.open()
        await create(store, "left", owner=None, workflow="nobody_has_it")
        await store.close()

    run_async(main())
    return tmp_path / "orders.db"


def diagnosis(path: Path) -> Diagnosis:
    return run_async(Admin(SQLiteStore(path, read_only=True)).doctor())


def found(path: Path, check: str) -> Finding:
    (one,) = [finding for finding in diagnosis(path).findings if finding.check == check]
    return one


def contents(directory: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in directory.iterdir()}


def test_each_check_has_its_figure_and_not_a_byte_changes(path: Path) -> None:
    """A run that is due and has no worker is the only problem of this store: exit code 9."""
    before = contents(path.parent)
    result = invoke("doctor", "--json", store=path)
    told = {one["check"]: one for one in json.loads(result.stdout)["findings"]}
    assert list(told) == [
        "schema", "journal", "size", "integrity", "mode", "wal-size", "file-system", "free-space", "locks", "workers",
        "runs", "parked", "due", "dead-letters",
    ]  # fmt: skip
    assert {name: one["level"] for name, one in told.items() if one["level"] != "ok"} == {"due": "problem"}
    assert told["runs"]["figures"] == {"pending": 1}
    assert told["mode"]["figures"] == {"mode": "0600"}
    assert told["integrity"]["figures"] == {"complete": True}
    assert told["journal"]["figures"] == {"journal_mode": "wal", "durability": "full"}
    assert result.exit_code == 9
    assert contents(path.parent) == before


def test_all_is_well_is_exit_code_0(tmp_path: Path) -> None:
    async def main() -> None:
        async with Engine(tmp_path / "empty.db"):
            pass

    run_async(main())
    result = invoke("doctor", store=tmp_path / "empty.db")
    assert (result.exit_code, "all is well (14 checks)" in result.output) == (0, True), result.output


def test_a_store_that_is_not_there_is_an_error_and_stays_away(tmp_path: Path) -> None:
    result = invoke("doctor", store=tmp_path / "none.db")
    assert (result.exit_code, "there is no store at" in result.output) == (1, True)
    assert not (tmp_path / "none.db").exists()


def test_a_run_without_a_worker_and_one_with(path: Path) -> None:
    """Nobody is alive; then a worker is there that does not know the workflow, and says so on the run."""
    one = found(path, "due")
    assert one.level is Level.PROBLEM
    assert "1 run is due; for the longest time, " in one.text
    assert one.text.endswith("'left' (nobody_has_it 1): no worker is alive")
    assert "perdure worker --app" in one.advice

    async def main() -> Finding:
        async with Engine(path, worker=False) as client:
            worker = WorkerInfo(id="w", name="other", host="here", pid=7, started_at=0, definitions=(("w", "1"),))
            await client.store.register_worker(worker)
            whole = await client.admin.doctor()
            workers = next(one for one in whole.findings if one.check == "workers")
            assert workers.figures == {"alive": 1, "draining": 0, "silent": 0, "dead": 0}
            return next(one for one in whole.findings if one.check == "due")

    one = run_async(main())
    assert one.level is Level.ATTENTION
    assert one.text.endswith("1 worker alive, and none runs this workflow and version")


def test_a_dead_worker_is_named(path: Path) -> None:
    """Its lock file is there and free."""
    connection = apsw.Connection(str(path))
    connection.execute("INSERT INTO workers (id, name, host, pid, started_at) VALUES ('w', 'gone', 'here', 7, 0)")
    connection.close()
    Path(lock_path(str(path), "w")).touch()
    one = found(path, "workers")
    assert (one.level, one.figures["dead"]) == (Level.ATTENTION, 1)
    assert "dead: 'gone' (pid 7 on here), with 0 runs" in one.text
    assert Path(lock_path(str(path), "w")).exists(), "who frees its runs needs it"


def test_parked_runs_and_dead_letters(path: Path) -> None:
    connection = apsw.Connection(str(path))
    connection.execute("UPDATE runs SET status = 'parked', reason = 'diverged: at record 2'")
    connection.execute(
        "INSERT INTO dead_letters (type, data, policy, target, target_status, sent_at, died_at, reason) "
        "VALUES ('T', x'', '', 'left', 'completed', 0, 0, 'it had ended')"
    )
    one = found(path, "parked")
    assert (one.level, one.text) == (Level.ATTENTION, "1 run parked: 1 diverged (such as 'left')")
    assert "perdure why left" in one.advice
    one = found(path, "dead-letters")
    assert (one.level, one.figures, "dead-letters list" in one.advice) == (Level.ATTENTION, {"count": 1}, True)
    connection.execute("UPDATE runs SET reason = 'poisoned: the worker died 10 times'")
    connection.close()
    one = found(path, "parked")
    assert (one.level, one.figures) == (Level.PROBLEM, {"parked": 1, "poisoned": 1})


# -- the file and its disk -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "level"),
    [("ext4", Level.OK), ("xfs", Level.OK), ("nfs4", Level.PROBLEM), ("cifs", Level.PROBLEM), ("9p", Level.PROBLEM),
     ("fuse.sshfs", Level.PROBLEM), ("tmpfs", Level.ATTENTION)],
)  # fmt: skip
def test_file_systems(path: Path, kind: str, level: Level, monkeypatch: pytest.MonkeyPatch) -> None:
    """FAULTS O13: one that machines share does not keep them apart. The deepest mount above the file counts."""
    mounted(path.parent, kind, monkeypatch)
    one = found(path, "file-system")
    assert (one.level, one.figures) == (level, {"kind": kind})
    assert ("PostgreSQL" in one.advice) is (level is Level.PROBLEM)


def test_an_unknown_file_system_is_said_to_be_unknown(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health_disk, "MOUNTS", path.parent / "nowhere")
    assert found(path, "file-system").text == "its kind is not known on this system"


@pytest.mark.parametrize(("free", "level"), [(2 << 30, Level.OK), (1 << 29, Level.ATTENTION), (1 << 20, Level.PROBLEM)])
def test_free_space(path: Path, free: int, level: Level, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(path.parent)
    monkeypatch.setattr(health_disk.shutil, "disk_usage", lambda _: usage._replace(free=free))
    one = found(path, "free-space")
    assert (one.level, one.figures["free_bytes"]) == (level, free)


def test_a_file_that_others_may_read(path: Path) -> None:
    path.chmod(0o644)
    one = found(path, "mode")
    assert (one.level, one.advice) == (Level.ATTENTION, f"chmod 600 {path}")


def test_a_damaged_file_is_found(path: Path) -> None:
    """A page of the middle is overwritten: SQLite would not notice before it reads there."""
    size = path.stat().st_size
    with path.open("r+b") as file:
        for page in range(4096 * 3, size, 4096):
            file.seek(page + 100)
            file.write(b"\xff" * 2000)
    one = found(path, "integrity")
    assert one.level is Level.PROBLEM
    assert "damaged" in one.text
    assert "restore a backup" in one.advice


def test_looking_for_damage_is_bounded(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a file that is too large to be read in time, what was read is said."""
    monkeypatch.setattr(health.limits, "DOCTOR_INTEGRITY_SECONDS", -1.0)
    monkeypatch.setattr(health, "_PROGRESS_STEPS", 1)
    one = found(path, "integrity")
    assert (one.level, one.figures) == (Level.OK, {"complete": False})
    assert "not all of the file was read" in one.text


def test_a_large_wal_is_noticed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "DOCTOR_SQLITE_WAL_BYTES", 1)
    connection = apsw.Connection(str(path))
    connection.wal_autocheckpoint(0)
    connection.execute("UPDATE runs SET updated_at = updated_at + 1")
    one = found(path, "wal-size")
    assert one.level is Level.ATTENTION
    assert one.figures["bytes"] == Path(f"{path}-wal").stat().st_size
    connection.close()


@pytest.mark.skipif(not health_disk.LOCKS.exists(), reason="only Linux tells who has locks")
def test_the_process_that_has_the_file_open_is_named(path: Path) -> None:
    code = (
        "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute('BEGIN IMMEDIATE'); print('in', flush=True)"
    )
    code += "; sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", code, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"in\n"
        one = found(path, "locks")
        assert other.pid in one.figures["pids"]
        assert os.getpid() not in one.figures["pids"]
        assert f"{other.pid} (" in one.text


def test_a_file_of_another_program_is_a_finding(tmp_path: Path) -> None:
    connection = apsw.Connection(str(tmp_path / "foreign.db"))
    connection.execute("CREATE TABLE notes (text)")
    connection.close()
    before = contents(tmp_path)
    whole = diagnosis(tmp_path / "foreign.db")
    assert whole.findings[0].check == "file"
    assert whole.findings[0].level is whole.level is Level.PROBLEM
    assert "of another program" in whole.findings[0].text
    assert contents(tmp_path) == before


def test_a_file_of_an_older_perdure(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is looked at as it is, migrated or not; what is in it is shown."""
    from cli.test_looking_never_writes import old_file

    old = path.parent / "old.db"
    old_file(old)
    before = contents(path.parent)
    one = found(old, "schema")
    assert (one.level, one.figures["version"]) == (Level.ATTENTION, 1)
    assert found(old, "runs").figures == {"pending": 1}
    assert contents(path.parent) == before


def test_a_check_that_fails_says_so_and_stops_no_other(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: Any) -> Any:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(health_disk.shutil, "disk_usage", broken)
    whole = {one.check: one for one in diagnosis(path).findings}
    assert whole["free-space"].level is Level.ATTENTION
    assert "could not be checked: OSError: [Errno 5] Input/output error" in whole["free-space"].text
    assert whole["locks"].level is Level.OK


# -- in memory, and elsewhere ----------------------------------------------------------------------------


def test_in_memory() -> None:
    async def main() -> None:
        async with Engine(":memory:") as engine:
            whole = await engine.admin.doctor()
            assert [one.check for one in whole.findings] == [
                "store", "workers", "runs", "parked", "due", "dead-letters",
            ]  # fmt: skip
            assert whole.level is Level.OK
            assert whole.findings[1].figures["alive"] == 1
            await create(engine.store, "left", owner=None, workflow="nobody_has_it")
        one = next(one for one in (await doctor(engine.store)).findings if one.check == "due")
        assert (one.level, one.figures["run"]) == (Level.PROBLEM, "left")

    run_async(main())


def test_a_store_that_does_not_say_how_it_is() -> None:
    """One of a user's own, with the protocol and nothing more."""

    class Bare:
        pass

    whole = run_async(doctor(Bare()))  # type: ignore[arg-type]
    assert (whole.store, whole.level, whole.findings[0].check) == ("Bare", Level.OK, "store")


def test_what_comes_from_a_store_cannot_move_the_cursor(path: Path) -> None:
    """FAULTS S3: ids and names are anybody's."""
    connection = apsw.Connection(str(path))
    connection.execute("UPDATE runs SET id = ?, workflow = ?", ("\x1b[31mred", "\x1b]0;title\x07"))
    connection.close()
    result = invoke("doctor", store=path)
    assert "\x1b" not in result.output
    assert "\\x1b[31mred" in result.output


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0031, "3 ms"), (5, "5.0 s"), (90, "90 s"), (150, "2 min"), (9000, "2.5 h"), (259200, "3.0 d")],
)
def test_durations(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 bytes"), (1500, "1.5 kB"), (250_000_000, "250 MB"), (2**42, "4.4 TB")]
)
def test_sizes(size: int, text: str) -> None:
    assert size_text(size) == text


def test_a_memory_store_is_examinable_unopened() -> None:
    assert run_async(doctor(MemoryStore())).level is Level.OK

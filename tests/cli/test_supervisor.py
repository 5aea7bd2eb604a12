"""`perdure worker --processes N`: workers that are restarted when they die, and gone with their supervisor."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from cli.cli_kit import APP, Perdure, invoke, invoke_json, wait_for_file
from cli.test_worker_signals import resting_run
from support.lives import PATIENCE_SECONDS

#: Sweeps that a test can wait for.
QUICK = {"PERDURE_SWEEP_INTERVAL": "0.05"}

SHOP = """
from perdure import step, workflow

@step
async def sv_note() -> str:
    return {version!r}

@workflow(name="sv_shop", version={version!r})
async def sv_shop() -> str:
    return await sv_note()
"""


class Supervised(Perdure):
    """`perdure worker --processes N`; what it printed is kept."""

    def __init__(
        self, store: Path | str, processes: int, *more: str, app: str = APP, env: dict[str, str] | None = None
    ):
        arguments = ("worker", "--processes", str(processes), "--app", app, "--store", str(store), *more)
        super().__init__(*arguments, env={**QUICK, **(env or {})})
        #: The process of each place, the newest.
        self.pids: dict[int, int] = {}
        self.seen: list[str] = []

    def until(self, text: str) -> str:
        while line := self.line():
            self.seen.append(line)
            if found := re.search(r"started: process (\d+), pid (\d+)", line):
                self.pids[int(found[1])] = int(found[2])
            if text in line:
                return line
        raise AssertionError(f"{text!r} was never printed; got {self.seen}")

    def ready(self, processes: int) -> dict[int, int]:
        for _ in range(processes):
            self.until("perdure worker ready")
        return dict(self.pids)

    def rest(self) -> list[str]:
        while line := self.line():
            self.seen.append(line)
        return self.seen


def started(store: Path, processes: int, *more: str, **options: Any) -> Supervised:
    supervisor = Supervised(store, processes, *more, **options)
    supervisor.ready(processes)
    return supervisor


def is_there(pid: int) -> bool:
    """Whether a process runs; one that has ended and that nobody has waited for does not."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait_until_gone(pids: list[int]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while any(map(is_there, pids)):
        assert time.monotonic() < deadline, f"{pids} are still there"
        time.sleep(0.01)


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    path = tmp_path / "sv_shop.py"
    path.write_text(SHOP.format(version="1"))
    return path


def workers(store: Path) -> list[dict[str, Any]]:
    return invoke_json("workers", store=store)["workers"]  # type: ignore[no-any-return]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_all_leave_in_order_at_the_first_signal(store: Path, number: int, code: int) -> None:
    """CONFORMANCE W7: each child is a worker of its own; one signal drains all of them."""
    with started(store, 3, "--name", "shop") as supervisor:
        there = workers(store)
        assert sorted(one["name"] for one in there) == ["shop-1", "shop-2", "shop-3"]
        assert {one["pid"] for one in there} == set(supervisor.pids.values())
        assert {one["state"] for one in there} == {"alive"}
        supervisor.signal(number)
        lines = supervisor.rest()
        assert supervisor.wait() == code
    assert sorted(line for line in lines if line.endswith("perdure worker stopped")) == [
        f"[{process}] perdure worker stopped" for process in (1, 2, 3)
    ]
    assert lines[-1] == "perdure worker all stopped"
    assert not list(store.parent.glob("*.lock"))


def test_a_child_that_dies_is_started_again(store: Path) -> None:
    """CONFORMANCE W7: after a pause; its runs are taken over meanwhile or afterwards, by whichever worker is there."""
    mark = resting_run(store, 0.01)
    with started(store, 2) as supervisor:
        wait_for_file(mark)
        first = supervisor.pids[1]
        os.kill(first, signal.SIGKILL)
        line = supervisor.until("perdure worker died")
        assert re.search(rf"process 1, pid {first}, ended SIGKILL, restart in seconds 0\.\d+$", line)
        supervisor.until("[1] perdure worker ready")
        assert supervisor.pids[1] != first
        assert {one["pid"] for one in workers(store) if one["state"] == "alive"} == set(supervisor.pids.values())
        supervisor.signal(signal.SIGTERM)
        assert supervisor.wait() == 0


def test_running_steps_may_finish_within_the_grace(store: Path) -> None:
    """FAULTS O16: also if the one who stops the supervisor tells its children, too, as systemd does."""
    mark = resting_run(store, 0.7)
    with started(store, 2, "--grace", "20") as supervisor:
        wait_for_file(mark)
        for pid in supervisor.pids.values():
            os.kill(pid, signal.SIGTERM)
        supervisor.signal(signal.SIGTERM)
        assert supervisor.wait() == 0
    kinds = [record["kind"] for record in invoke_json("history", "rest", store=store)["records"]]
    assert "step_done" in kinds


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_second_signal_ends_all_at_once(store: Path, number: int, code: int) -> None:
    """FAULTS O16: whatever they are doing."""
    mark = resting_run(store, 600.0)
    with started(store, 2, "--grace", "600") as supervisor:
        wait_for_file(mark)
        supervisor.signal(signal.SIGTERM)
        supervisor.until("draining")
        supervisor.signal(number)
        assert supervisor.wait() == code
    wait_until_gone(list(supervisor.pids.values()))


def test_no_child_outlives_its_supervisor(store: Path) -> None:
    """CONFORMANCE W7: SIGKILL of the supervisor; its children notice, finish what runs, and leave in order."""
    mark = resting_run(store, 0.7)
    with started(store, 2, "--grace", "20") as supervisor:
        wait_for_file(mark)
        supervisor.signal(signal.SIGKILL)
        wait_until_gone(list(supervisor.pids.values()))
    assert not list(store.parent.glob("*.lock"))
    assert workers(store) == []
    assert "step_done" in [record["kind"] for record in invoke_json("history", "rest", store=store)["records"]]


# -- rolling restart -------------------------------------------------------------------------------------------------


def test_a_rolling_restart_replaces_one_after_another(store: Path, shop: Path) -> None:
    """CONFORMANCE W7: each by a process that loads the new code; the old one leaves when the new one is ready."""
    with started(store, 2, app=str(shop)) as supervisor:
        before = dict(supervisor.pids)
        shop.write_text(SHOP.format(version="2"))
        supervisor.signal(signal.SIGHUP)
        supervisor.until("rolling restart done")
        assert not set(before.values()) & set(supervisor.pids.values())
        story = [
            f"{found[1] or found[3]} {found[2] or 'start'}"
            for line in supervisor.seen[supervisor.seen.index("perdure worker rolling restart: processes 2") :]
            if (
                found := re.match(
                    r"\[(\d)\] perdure worker (ready|draining|stopped)|perdure worker started: process (\d)", line
                )
            )
        ]
        turns = ["start", "ready", "draining", "stopped"]
        assert story == [f"{process} {what}" for process in (1, 2) for what in turns]
        assert [one["serves"] for one in workers(store)] == [[{"workflow": "sv_shop", "version": "2"}]] * 2
        supervisor.signal(signal.SIGTERM)
        assert supervisor.wait() == 0


def test_bad_code_ends_a_rolling_restart_and_the_old_ones_stay(store: Path, shop: Path) -> None:
    """CONFORMANCE W7: with a line that says so; the next SIGHUP, with good code, goes through."""
    with started(store, 2, app=str(shop)) as supervisor:
        before = dict(supervisor.pids)
        shop.write_text("this is no Python")
        supervisor.signal(signal.SIGHUP)
        line = supervisor.until("rolling restart stopped")
        assert "process 1, pid " in line
        assert "did not become ready: it ended with exit code 1. The old ones stay." in line
        assert any(f"--app {shop} could not be imported" in one for one in supervisor.seen)
        assert {one["pid"] for one in workers(store)} == set(before.values())
        shop.write_text(SHOP.format(version="3"))
        supervisor.signal(signal.SIGHUP)
        supervisor.until("rolling restart done")
        assert [one["serves"][0]["version"] for one in workers(store)] == ["3", "3"]
        supervisor.signal(signal.SIGTERM)
        assert supervisor.wait() == 0


# -- what a restart does not help ------------------------------------------------------------------------------------


def test_a_bad_app_is_reported_once(store: Path, shop: Path) -> None:
    """CONFORMANCE W7: and the supervisor ends with the code of its child."""
    shop.write_text("print('half a line', end='')\nimport no_such_module_at_all")
    with Supervised(store, 4, app=str(shop)) as supervisor:
        lines = supervisor.rest()
        assert supervisor.wait() == 1
    assert sum("could not be imported" in line for line in lines) == 1
    assert "[1] half a line" in lines
    (last,) = [line for line in lines if "gave up" in line]
    assert last.endswith("ended exit code 1, detail starting it again would not help")


@pytest.mark.parametrize(("url", "message"), [(":memory:", "is seen by one process only"), ("/proc", "P-30")])
def test_a_store_that_cannot_be_used_is_reported_once(url: str, message: str) -> None:
    with Supervised(url, 2) as supervisor:
        lines = supervisor.rest()
        assert supervisor.wait() == 1
    assert sum(message in line for line in lines) == 1


def test_a_worker_without_workflows_is_a_mistake_of_the_command_line(store: Path) -> None:
    with Perdure("worker", "--processes", "2", "--store", str(store), env={"PERDURE_APP": ""}) as supervisor:
        supervisor.until("a worker needs workflows")
        supervisor.until("gave up")
        assert supervisor.wait() == 2


def test_a_store_that_is_deleted_ends_all_with_its_code(store: Path) -> None:
    """FAULTS B7: nobody is started again on a file that is another."""
    with started(store, 2) as supervisor:
        store.unlink()
        lines = supervisor.rest()
        assert supervisor.wait() == 7
    assert sum("gave up" in line for line in lines) == 2
    assert not store.exists()


@pytest.mark.parametrize("number", ["0", "-1", "129", "1.5", "many"])
def test_a_number_of_processes_that_makes_no_sense_is_refused(store: Path, number: str) -> None:
    """What it means, and what would be a good one."""
    result = invoke("worker", "--processes", number, "--app", APP, store=store)
    assert result.exit_code == 2
    text = " ".join(result.stderr.split())
    assert f"'{number}' is not a number of processes from 1 to 128." in text
    assert f"one for each core is a good start, and this machine has {os.cpu_count()}" in text
    assert not store.exists()


# -- output ----------------------------------------------------------------------------------------------------------


def test_machine_output_is_one_document_a_line_that_says_whose_it_is(store: Path, shop: Path) -> None:
    """Also what code prints that is no document, and on standard error."""
    shop.write_text(SHOP.format(version="1") + "\nimport sys\nprint('{\"odd\"')\nprint('oops', file=sys.stderr)\n")
    with Supervised(store, 2, "--json", app=str(shop)) as supervisor:
        ready = 0
        while ready < 2:
            line = supervisor.line()
            supervisor.seen.append(line)
            ready += json.loads(line)["event"] == "ready"
        supervisor.signal(signal.SIGTERM)
        documents = [json.loads(line) for line in supervisor.rest()]
        assert supervisor.wait() == 0
    odd = [(one["process"], one["stream"]) for one in documents if one["event"] == "output" and one["text"] == '{"odd"']
    assert sorted(odd) == [(1, "stdout"), (2, "stdout")]
    assert {one["process"] for one in documents if one["event"] == "output" and one["text"] == "oops"} == {1, 2}
    assert {one["process"] for one in documents if one["event"] == "stopped"} == {1, 2}
    assert documents[0]["event"] == "supervising"
    assert documents[-1] == {"event": "all_stopped"}


def test_the_store_is_not_on_the_command_lines_of_children(store: Path) -> None:
    """FAULTS S10: everybody on the machine can read those, and a URL may hold a password."""
    with started(store, 1) as supervisor:
        assert str(store) not in Path(f"/proc/{supervisor.pids[1]}/cmdline").read_text()
        supervisor.signal(signal.SIGTERM)
        assert supervisor.wait() == 0

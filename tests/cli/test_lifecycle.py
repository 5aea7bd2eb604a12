"""The commands by which people look after runs: pause, resume, retry, why, check, fork, export, prune and so on."""

from __future__ import annotations

import json
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest

from cli.cli_kit import APP, Perdure, invoke, invoke_json, with_engine
from perdure import Engine
from support.lives import until


def start(store: Path, run_id: str = "one") -> None:
    """A run that a worker has brought to its wait for an approval."""
    invoke("start", "cli_order", "order_id=o-1", "--id", run_id, "--app", APP, store=store)

    async def settle(engine: Engine) -> None:
        async def waits() -> bool:
            return any(wait.kind == "receive" for wait in (await engine.status(run_id)).waiting)

        await until(waits)

    with_engine(store, settle)


def fail(store: Path, run_id: str = "bad") -> None:
    done = invoke("start", "cli_fail", "text=oops", "--id", run_id, "--work", "--wait", "--app", APP, store=store)
    assert done.exit_code == 4, done.output


def finish(store: Path, run_id: str = "one", by: str = "ann") -> Any:
    async def act(engine: Engine) -> Any:
        return await engine.result(run_id, timeout=20)

    invoke("send", run_id, "CliApproved", "--data", json.dumps({"by": by}), store=store)
    return with_engine(store, act)


def test_pause_and_unpause(store: Path) -> None:
    """The commands do to a run what the engine's own calls do. CONFORMANCE L4."""
    start(store)
    assert invoke_json("pause", "one", "--by", "ann", store=store) == {"id": "one", "changed": True, "status": "paused"}
    assert invoke_json("pause", "one", store=store)["changed"] is False
    assert "paused by ann" in invoke("ls", store=store).stdout
    assert "paused by ann" in invoke("why", "one", store=store).stdout
    assert "goes on (status pending)" in invoke("unpause", "one", store=store).stdout
    assert "it is not paused" in invoke("unpause", "one", store=store).stdout
    assert finish(store) == "receipt-o-1-500 approved by ann"
    refused = invoke("pause", "one", store=store)
    assert refused.exit_code == 1
    assert "ActionRefused" in refused.stderr
    assert "[P-701]" in refused.stderr
    assert invoke("pause", "nobody", store=store).exit_code == 3


def test_resume_a_failed_run(store: Path) -> None:
    """CONFORMANCE L4: it goes on, and here fails again, because nothing was fixed."""
    fail(store)
    assert invoke_json("resume", "bad", "--app", APP, store=store)["changed"] is True

    async def settle(engine: Engine) -> None:
        async def ended() -> bool:
            return (await engine.status("bad")).status == "failed"

        await until(ended)

    with_engine(store, settle)
    assert "resumed" in invoke("history", "bad", store=store).stdout
    start(store)
    finish(store)
    refused = invoke("resume", "one", store=store)
    assert refused.exit_code == 1
    assert "is completed: there is nothing to go on with" in refused.stderr


def test_retry(store: Path) -> None:
    """CONFORMANCE L4: refused with a reason where nothing waits for an attempt."""
    start(store)
    refused = invoke_json("retry", "one", store=store)
    assert refused["code"] == "P-701"
    assert "perdure why one" in refused["message"]


def test_why(store: Path) -> None:
    """Bar 7: one line for people, the parts of it for programs."""
    start(store)
    told = invoke("why", "one", store=store)
    assert told.exit_code == 0
    assert told.stdout.startswith("one: it waits for the event 'CliApproved' at 'receive' (cli_app.py:")
    assert "also: no worker is alive" in told.stdout
    parts = invoke_json("why", "one", store=store)
    assert (parts["kind"], parts["location"]) == ("event", "receive")
    assert invoke("why", "nobody", store=store).exit_code == 3


def test_fork(store: Path) -> None:
    """CONFORMANCE L4: with a result, with an input; and near names for a location that does not exist."""
    start(store)
    assert finish(store) == "receipt-o-1-500 approved by ann"
    assert (
        invoke("fork", "one", "--id", "two", "--at", "cli_charge", "--result", '"free"', store=store).stdout == "two\n"
    )
    made = invoke_json("fork", "one", "--id", "three", "--input", '{"cents": 1}', store=store)
    assert made == {"id": "three", "from": "one"}
    assert finish(store, "two", "bob") == "free approved by ann", "the event that came later comes again"
    assert finish(store, "three", "bob") == "receipt-o-1-1 approved by ann"
    unknown = invoke("fork", "one", "--id", "four", "--at", "cli_chrage", store=store)
    assert unknown.exit_code == 1
    assert "Near ones: 'cli_charge'" in unknown.stderr
    for wrong in (("--result", "{"), ("--input", "[1]"), ("--input", "nonsense")):
        refused = invoke("fork", "one", "--id", "four", "--at", "cli_charge", *wrong, store=store)
        assert refused.exit_code == 1
        assert "was not understood" in refused.stderr
    assert invoke("show", "four", store=store).exit_code == 3
    from_stdin = invoke("fork", "one", "--id", "four", "--at", "cli_charge", "--result", "-", store=store, stdin='"x"')
    assert from_stdin.exit_code == 0


def test_export_and_import(store: Path, tmp_path: Path) -> None:
    """A run travels as a file; the copy is paused; damaged files are refused."""
    start(store)
    file = tmp_path / "one.json"
    assert invoke_json("export", "one", "-o", str(file), store=store)["bytes"] == file.stat().st_size
    assert file.stat().st_mode & 0o077 == 0, "payloads are nobody else's business"
    assert "--force" in invoke("export", "one", "-o", str(file), store=store).stderr
    assert invoke("export", "one", "-o", str(file), "--force", store=store).exit_code == 0
    piped = invoke("export", "one", "-o", "-", store=store).stdout
    assert piped == file.read_text()
    other = tmp_path / "other.db"
    assert invoke_json("import", str(file), store=other) == {"id": "one", "status": "paused"}
    assert (
        invoke("import", str(file), "--id", "copy", "--run", store=other).stdout == "copy: imported (status pending)\n"
    )
    assert "imported from one.json" in invoke("why", "one", store=other).stdout
    invoke("unpause", "one", store=other)
    assert finish(other) == "receipt-o-1-500 approved by ann"
    file.write_text(file.read_text()[:-20])
    damaged = invoke("import", str(file), "--id", "third", store=other)
    assert damaged.exit_code == 1
    assert "ExportUnusable" in damaged.stderr
    assert "cannot be read" in invoke("import", str(tmp_path / "none.json"), store=other).stderr
    assert invoke("export", "nobody", store=store).exit_code == 3


def test_delete_and_prune(store: Path) -> None:
    """The commands remove one run, or all that ended long ago. CONFORMANCE L4."""
    start(store)
    refused = invoke("delete", "one", store=store)
    assert refused.exit_code == 1
    assert "perdure terminate one" in refused.stderr
    finish(store)
    assert invoke_json("delete", "one", store=store) == {"id": "one", "deleted": True}
    assert invoke("show", "one", store=store).exit_code == 3
    fail(store)
    start(store, "open")
    assert invoke_json("prune", "--older-than", "1 day", store=store)["pruned"] == 0
    dry = invoke("prune", "--older-than", "0s", "--dry-run", store=store)
    assert dry.stdout == "1 runs would be removed\n"
    assert invoke("prune", "--older-than", "0s", "--status", "completed", store=store).stdout == "0 runs were removed\n"
    assert invoke_json("prune", "--older-than", "0s", "--status", "failed", store=store)["pruned"] == 1
    assert [run["id"] for run in invoke_json("ls", store=store)["runs"]] == ["open"]
    assert invoke("prune", store=store).exit_code == 2
    assert "was not understood" in invoke("prune", "--older-than", "soon", store=store).stderr
    assert invoke("prune", "--older-than", "1d", "--status", "waiting", store=store).exit_code == 2


SHOP = """
    from dataclasses import dataclass
    from perdure import event, receive, step, workflow

    @event(name="ShopGo")
    @dataclass
    class Go:
        pass

    @step
    async def charge() -> None: ...

    @step
    async def reserve() -> None: ...

    @workflow
    async def shop_order() -> None:
        await charge()
        await receive(Go)
    """


@pytest.mark.parametrize("as_json", [False, True])
def test_check_before_a_deploy(store: Path, tmp_path: Path, as_json: bool) -> None:
    """Bar 6: exit code 0 and 6, both source lines, in a process of its own as in CI."""
    shop = tmp_path / "shop.py"
    shop.write_text(textwrap.dedent(SHOP))
    flags = ["--json"] if as_json else []
    with Perdure("worker", "--app", str(shop), "--store", str(store), "-v") as worker:
        for number in range(3):
            with Perdure(
                "start", "shop_order", "--app", str(shop), "--store", str(store), "--id", f"o-{number}"
            ) as one:
                assert one.wait() == 0
        deadline = time.monotonic() + 20
        while any(run["records"] < 2 for run in invoke_json("ls", store=store)["runs"]):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        worker.signal(15)
        assert worker.wait() == 0
    with Perdure("check", "--app", str(shop), "--store", str(store), *flags) as fine:
        printed = fine.line()
        assert fine.wait() == 0
    assert printed == ('{"fine": 3, "broken": [], "warnings": {}}' if as_json else "3 fine")
    shop.write_text(textwrap.dedent(SHOP).replace("    await charge()", "    await reserve()\n    await charge()"))
    with Perdure("check", "--app", str(shop), "--store", str(store), *flags) as broken:
        text = broken.line()
        while line := broken.line():
            text += "\n" + line
        assert broken.wait() == 6
    if as_json:
        found = json.loads(text)
        assert {run["id"] for run in found["broken"]} == {"o-0", "o-1", "o-2"}
        text = found["broken"][0]["text"]
    else:
        assert "0 fine, 3 will break" in text
        assert text.count("no longer matches its journal") == 3
    assert "step 'charge'" in text
    assert "shop.py:18" in text
    assert "step 'reserve'" in text


def test_check_needs_the_code(store: Path) -> None:
    start(store)
    refused = invoke("check", store=store)
    assert refused.exit_code == 1
    assert "--app" in refused.stderr

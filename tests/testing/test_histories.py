"""Journals of real runs, saved as files, are replayed by the code of today."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from perdure import Engine, continue_as, log, sleep, step, workflow
from perdure.authoring.registry import Registry, registry
from perdure.testing import (
    NotReplayable,
    VirtualEngine,
    check_history,
    journal_text,
    load_history,
    replays,
    save_history,
)
from testing.test_mocks import charge


@step
async def greet(name: str) -> str:
    return f"hello {name}"


@workflow
async def greeting(name: str, times: int = 1) -> str:
    await greet(name)
    await sleep("1 day")
    log.info("greeted")
    if times > 1:
        await continue_as(greeting(name, times - 1))
    return await greet(name.upper())


@workflow
async def changing() -> str:
    await greet("a")
    await sleep("1 day")
    return "end"


async def test_finished_and_waiting_runs_replay(engine: VirtualEngine, tmp_path: Path) -> None:
    finished = await engine.start(greeting("ann", 3), id="f")
    await finished.result()
    waiting = await engine.start(greeting("bob"), id="w")
    await engine.wait_until(waiting, waiting_for="sleep")
    for run in (finished, waiting):
        path = await save_history(engine, run, tmp_path / f"{run.id}.json")
        history = load_history(path)
        assert history.id == run.id
        check_history(history)
        check_history(path)
    assert [generation.number for generation in load_history(tmp_path / "f.json").journals] == [1, 2, 3]


def test_they_replay_from_a_store_on_disk(tmp_path: Path) -> None:
    async def main() -> Path:
        async with Engine(tmp_path / "runs.db") as engine:
            run = await engine.start(greeting("ann"), id="d")
            return await save_history(engine, run, tmp_path / "d.json")

    check_history(asyncio.run(main()))


async def test_changed_code_is_told_with_the_divergence(
    engine: VirtualEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CONFORMANCE V1, before a deploy instead of after it."""
    run = await engine.start(changing(), id="c")
    await engine.wait_until(run, waiting_for="sleep")
    path = await save_history(engine, run, tmp_path / "c.json")

    async def changed() -> str:
        await sleep("2 days", name="nap")
        return "end"

    monkeypatch.setattr(changing, "_executed", changed)
    monkeypatch.delitem(changing.__dict__, "spec")
    with pytest.raises(NotReplayable, match=r"(?s)c\.json does not replay: Diverged.*greet.*nap"):
        check_history(path)
    monkeypatch.delitem(changing.__dict__, "spec", raising=False)


def test_files_that_are_none_say_so(tmp_path: Path) -> None:
    for name, text in {"a": "", "b": "{}", "c": '{"run_id": 1}'}.items():
        file = tmp_path / f"{name}.json"
        file.write_text(text)
        with pytest.raises(NotReplayable, match=f"{name}.json cannot be read as a history"):
            load_history(file)
    with pytest.raises(NotReplayable, match=r"missing\.json cannot be read"):
        load_history(tmp_path / "missing.json")
    with pytest.raises(NotReplayable, match="no history"):
        replays(tmp_path / "nowhere")


async def test_an_unknown_workflow_is_named(engine: VirtualEngine, tmp_path: Path) -> None:
    run = await engine.start(greeting("ann"), id="u")
    path = await save_history(engine, run, tmp_path / "u.json")
    assert path.read_bytes() == await engine.admin.export_run("u"), "one format"
    with registry.replaced(Registry()), pytest.raises(NotReplayable, match="no workflow is called 'greeting'"):
        check_history(path)
    path.write_text(path.read_text().replace('"greeting"', '"gone"'))
    with pytest.raises(NotReplayable, match="does not match its checksum"):
        check_history(path)


#: One case for each file; the file was written by `save_history` and is kept as it was.
test_saved_histories_replay = replays("histories/")


async def test_a_journal_as_text_is_the_same_every_time(engine: VirtualEngine) -> None:
    engine.mock(charge, sequence=[ConnectionError("down"), "receipt"])

    @workflow
    async def telling(name: str) -> Any:
        receipt = await charge(5)
        await greet(name)
        await sleep("30 days")
        return {"receipt": receipt}

    run = await engine.start(telling("ann"))
    await run.result()
    text = await engine.journal_text(run)
    assert text == TEXT
    assert journal_text(await engine.admin.history(run.id), names="sites").count("[test_histories.py:") == 4


TEXT = """\
1              started              telling(name="ann")  version 1
2              step_retry   charge  attempt 1: ConnectionError: down
3  +0.100225s  step_done    charge  (cents=5) -> "receipt"  (attempt 2)
4              step_done    greet   (name="ann") -> "hello ann"
5        +30d  timer_fired  sleep
6              completed            -> {"receipt":"receipt"}"""

"""Journals written by every release replay for ever (CONFORMANCE V5)."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import perdure
from fixtures.journals import record
from perdure import Engine, RunFinished
from perdure.admin import transfer
from perdure.admin.replay import FINE, in_callback, replay_loaded, replay_records
from perdure.authoring.registry import Registry, registry
from perdure.kernel.frontier import decode_frontier, unchecked_frontier
from perdure.kernel.journal import BODIES, from_row
from perdure.kernel.run import Run
from perdure.store.memory import MemoryStore
from perdure.store.model import Loaded
from perdure.store.protocol import Store
from perdure.types import Status
from support.lives import Lives, run_async

JOURNALS = Path(record.__file__).parent
RELEASES = sorted(path for path in JOURNALS.iterdir() if path.is_dir() and path.name[0].isdigit())
FILES = [file for release in RELEASES for file in sorted(release.glob("*.json"))]

_registries: dict[Path, tuple[Registry, Any]] = {}


@pytest.fixture
def code(request: pytest.FixtureRequest) -> Iterator[Any]:
    """The workflows of the file's own release, alone in the registry."""
    file: Path = request.getfixturevalue("file")
    own = _registries.get(file.parent)
    if own is None:
        fresh = Registry()
        with registry.replaced(fresh):
            own = _registries[file.parent] = (fresh, record.load(file.parent / "workflows.py"))
    with registry.replaced(own[0]):
        own[1].BROKEN.clear()
        yield own[1]


def name_of(file: Path) -> str:
    return f"{file.parent.name}/{file.stem}"


def is_open(file: Path) -> bool:
    return json.loads(file.read_bytes())["body"].get("finished_at") is None


async def imported(store: Store, file: Path) -> Loaded:
    await store.open()
    run_id = await transfer.import_run(store, file.read_bytes(), source=file.name)
    row = await store.get(run_id)
    assert row is not None
    (loaded,) = await store.load([row.key])
    return loaded


@pytest.mark.parametrize("file", FILES, ids=name_of)
def test_it_still_replays_to_where_it_was(file: Path, code: Any) -> None:
    """CONFORMANCE V5: no divergence, the same frontier; a finished run comes to the same end, byte for byte."""

    async def main() -> None:
        loaded = await imported(MemoryStore(), file)
        assert await in_callback(lambda: replay_loaded(registry, loaded)) == FINE
        row = loaded.run
        if row.status in (Status.COMPLETED, Status.FAILED):
            spec = registry.workflow(row.workflow, row.version)
            assert spec is not None
            run = Run(spec, row.id, row.generation, latest=registry.latest)
            records = [from_row(one) for one in loaded.rows]

            def replay() -> None:
                run.replay(records, decode_frontier(row.frontier) if row.frontier is not None else None)

            await in_callback(replay)
            end = records[-1].body
            outcome: Any = run.outcome
            assert outcome is not None
            if row.status is Status.COMPLETED:
                assert bytes(outcome.value) == bytes(end.value)  # type: ignore[attr-defined]
            else:
                assert (outcome.error.type, outcome.error.message) == (end.error.type, end.error.message)  # type: ignore[attr-defined]
            run.close()

    run_async(main())


@pytest.mark.parametrize("file", FILES, ids=name_of)
def test_every_prefix_of_it_replays(file: Path, code: Any) -> None:
    """CONFORMANCE V5, R7: and the journals of its earlier generations."""

    async def main() -> None:
        store = MemoryStore()
        loaded = await imported(store, file)
        row = loaded.run
        rows = [from_row(one) for one in loaded.rows]
        for length in range(1, len(rows) + 1):
            frontier = decode_frontier(unchecked_frontier(length))
            verdict = await in_callback(lambda part=rows[:length], at=frontier: replay_records(registry, row, part, at))  # type: ignore[misc]
            assert verdict.kind == "fine", verdict.text

    run_async(main())


@pytest.mark.parametrize("file", [file for file in FILES if is_open(file)], ids=name_of)
def test_an_open_one_goes_on_to_its_end(file: Path, code: Any, lives: Lives) -> None:
    """CONFORMANCE V5: on every store, with whatever it waits for given to it."""

    async def finish(engine: Engine, run_id: str) -> Any:
        for event in (code.Word("late"), code.Go(1), code.Go(2)):
            with contextlib.suppress(RunFinished):
                await engine.send(run_id, event)
        if (await engine.status(run_id)).status.terminal:
            return await engine.result(run_id)
        if (await engine.admin.why(run_id)).kind == "step-backoff":
            await engine.admin.retry(run_id)
        return await engine.result(run_id, timeout=20)

    async def main() -> None:
        async with lives.engine() as engine:
            handle = engine.get(await engine.admin.import_run(file.read_bytes()))
            await engine.admin.unpause(handle.id)

            async def loaded() -> bool:
                return (await engine.admin.why(handle.id)).kind not in ("due", "nothing")

            async with asyncio.timeout(20):
                while not await loaded():
                    await asyncio.sleep(0.005)
            assert await finish(engine, handle.id) is not None

    run_async(main())


def test_this_release_has_its_journals_and_they_hold_every_kind_of_record() -> None:
    """CONFORMANCE V5: a new kind of record needs a journal that has it: extend fixtures/journals/workflows.py, `make
    fixtures`."""
    release = JOURNALS / ".".join(perdure.__version__.split(".")[:2])
    assert release in RELEASES
    found = {
        one["kind"]
        for file in release.glob("*.json")
        for generation in json.loads(file.read_bytes())["body"]["journals"]
        for one in generation["records"]
    }
    assert found == set(BODIES)


def test_the_code_that_is_recorded_next_writes_journals(tmp_path: Path) -> None:
    """The script behind `make fixtures` works, before a release needs it."""
    (tmp_path / "workflows.py").write_text((JOURNALS / "workflows.py").read_text())
    with registry.replaced(Registry()):
        made = run_async(record.record(tmp_path))
    assert len(made) == len(list(tmp_path.glob("*.json"))) >= 15

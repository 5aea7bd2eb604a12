"""Fixtures for the whole suite."""

from __future__ import annotations

import asyncio
import gc
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from perdure.authoring.registry import Registry, registry
from support.effects import Effects
from support.lives import STORES, Lives
from support.postgres import give_back_all, server

# Names of workflows and events are unique per process, and pytest imports every test module into one. Each module
# gets a registry of its own, as each would have in a process of its own.
#: Folders of which the tests share workflows.
_SHARING = {"chaos", "cli", "events", "failover", "fleet", "lint", "processes"}
#: Files that use the workflows of another folder.
_LENT = {
    "admin/test_composed.py": "events",
    "failover/test_cuts.py": "fleet",
    "fleet/test_failpoints.py": "processes",
    "fleet/test_looking.py": "cli",
    "guard/test_forbidden_calls.py": "lint",
    "guard/test_allowed_calls.py": "lint",
}
_registries: dict[str, Registry] = {}


def _use_registry_of(path: Path) -> None:
    # The tests of the CLI load the same application files again and again, those of events and of
    # processes share workflows: each of these folders has one.
    where = _LENT.get(f"{path.parent.name}/{path.name}")
    key = Path(__file__).parent / where if where else path.parent if path.parent.name in _SHARING else path
    own = _registries.setdefault(str(key), Registry())
    registry.become(own)


@pytest.hookimpl(hookwrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Iterator[None]:
    if isinstance(collector, pytest.Module):
        _use_registry_of(collector.path)
    yield


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    _use_registry_of(item.path)


@pytest.fixture(params=STORES)
def lives(request: pytest.FixtureRequest, tmp_path: Path) -> Lives:
    """A store's data with engines on it, on every store."""
    if request.param == "postgres":
        server()  # starting it takes a second, which would stand still in the event loop of the first test
    return Lives(request.param, tmp_path)


@pytest.fixture
def effects(tmp_path: Path) -> Effects:
    return Effects(tmp_path / "effects.txt")


def _freeze() -> None:
    """Ten thousand collected tests and what simulated worlds leave are a heap of half a gigabyte, which every full
    collection would walk through again: `gc.collect()` in a test took two seconds of it."""
    gc.collect()
    gc.freeze()
    # Each end of an event loop looks through all tasks of the process; those that simulated worlds leave are many.
    for name in ("_all_tasks", "_scheduled_tasks"):  # of Python 3.11, and of later ones
        known = getattr(asyncio.tasks, name, ())
        for task in list(known):
            if task.get_loop().is_closed():
                known.discard(task)


#: Of what tests of behaviour do on PostgreSQL, every so manieth test of each file is run, beginning with the first one.
#: The store suite, what is particular to PostgreSQL, and the fleet are always whole.
EVERY_ON_POSTGRES = int(os.environ.get("PERDURE_TEST_POSTGRES_EVERY", "1"))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if EVERY_ON_POSTGRES == 1:
        return
    counts, left_out = Counter[Path](), list[pytest.Item]()
    for item in items:
        parameters = getattr(getattr(item, "callspec", None), "params", {})
        if parameters.get("lives") == "postgres" and item.path.parent.name not in ("stores", "fleet"):
            counts[item.path] += 1
            if counts[item.path] % EVERY_ON_POSTGRES != 1:
                left_out.append(item)
    config.hook.pytest_deselected(items=left_out)
    gone = set(left_out)
    items[:] = [item for item in items if item not in gone]


def pytest_collection_finish() -> None:
    _freeze()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    give_back_all()
    if nextitem is not None and nextitem.path != item.path:
        _freeze()

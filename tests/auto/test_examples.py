"""The examples of auto mode run, contain no step, and survive a kill after every record with the same effects."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from auto.example_lives import CASES, EXAMPLES, Life, example, live
from perdure import Engine, RunFailed, RunFinished
from perdure.testing import VirtualEngine, crash_everywhere
from support.lives import run_async
from support.processes import Process

#: What each prints, in this order.
PRINTS = {
    "order": ["validating o-1", "charging card", "shipping book and lamp", "status='delivered, payment-1'"],
    "approval": ["GET https", "querying", "mail to ann", "mail to bob", "processing", "approved"],
    "values": ["loading", "GET", "processing", "27", "trying", "falling back", "danger", "fallback", "tossing a coin"],
    "loops": ["processing a", "processing b", "['A', 'B']", "['C', 'D']", "['page 1', 'page 2']", "0", "10", "15"],
    "payment": ["fetching order-123", "charging 1999", "mailing receipt-order-123", "Payment(", "calling once", "["],
    "children": ["taking risk 1", "taking risk 2", "tidying the attic"],
    "dead_letters": [
        "closed",
        "booking 1999 for o-1",
        "alert a-1 not delivered to 'first'",
        "paging: the cellar is wet",
    ],
}


@pytest.mark.parametrize("name", sorted(PRINTS))
def test_an_example_runs_and_prints_what_it_promises(name: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", str(EXAMPLES / f"{name}.py")],
        capture_output=True, text=True, timeout=60, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    position = 0
    for part in PRINTS[name]:
        found = done.stdout.find(part, position)
        assert found >= 0, f"{part!r} is missing in {done.stdout!r}"
        position = found
    again = subprocess.run(
        [sys.executable, str(EXAMPLES / f"{name}.py")], capture_output=True, text=True, timeout=60, cwd=tmp_path
    )
    assert again.returncode == 0, again.stderr
    assert len(again.stdout) < len(done.stdout), "what was done is not done again"


def test_every_example_is_tested_and_has_no_step() -> None:
    """It reads like the original, with no step in it."""
    files = {path.stem: path for path in EXAMPLES.glob("*.py")}
    assert set(files) == set(PRINTS) == {life.module for life in CASES.values()}
    for path in files.values():
        tree = ast.parse(path.read_text())
        assert ast.get_docstring(tree), path
        names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names}
        assert "step" not in names | imported


def test_every_workflow_of_the_examples_is_run_and_explained() -> None:
    """The table of the examples names each workflow, and each is killed by the tests below."""
    decorated = {
        (path.stem, node.name)
        for path in EXAMPLES.glob("*.py")
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and any("workflow" in ast.unparse(decorator) for decorator in node.decorator_list)
    }
    background = ("children", "background"), ("children", "risky")  # run by their parent
    assert decorated == {(life.module, life.workflow) for life in CASES.values()} | {*background}
    table = (EXAMPLES.parents[1] / "docs" / "reference" / "auto-examples.md").read_text()
    rows = re.findall(r"^\|.*\| `(\w+)` in \[(\w+)\.py\]", table, re.MULTILINE)
    assert {(module, name) for name, module in rows} == decorated


@pytest.fixture
def printed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the examples print, instead of printing it."""
    lines: list[str] = []

    def say(*words: Any, **_: Any) -> None:
        lines.append(" ".join(str(word) for word in words))

    for life in CASES.values():
        monkeypatch.setattr(example(life.module), "print", say, raising=False)
    return lines


# Nobody waits for the detached child of `parent` in a rehearsal; in the test with real kills somebody does.
@pytest.mark.parametrize("name", sorted(CASES.keys() - {"parent"}))
def test_an_example_survives_a_crash_at_every_commit(name: str, printed: list[str]) -> None:
    """CONFORMANCE A1-A3: the same result, journal and effects, wherever it dies."""
    life = CASES[name]

    def setup(engine: VirtualEngine) -> None:
        if name == "coin":  # two undisturbed runs must agree
            engine.mock("next_boolean", True)

    report = crash_everywhere(life.invocation(), send=life.events(), setup=setup, effects=printed, hash_seeds=())
    assert report.points >= 2
    assert not str(report.result).startswith("run 'run' failed")


async def _undisturbed(life: Life, database: Path) -> Any:
    async with Engine(database, sweep_interval=0.02) as engine:
        return await live(engine, life)


async def _finish(life: Life, database: Path) -> tuple[Any, int]:
    async with Engine(database, sweep_interval=0.02) as engine:
        try:
            result = await live(engine, life)
        except RunFinished:
            result = await engine.result("run")
        return result, (await engine.status("run")).records


@pytest.mark.parametrize("name", sorted(CASES))
def test_an_example_survives_a_real_kill_after_every_record(name: str, printed: list[str], tmp_path: Path) -> None:
    """CONFORMANCE A1-A3 with SIGKILL: nothing that was recorded is done again; the call under way may be."""
    life = CASES[name]
    expected = run_async(_undisturbed(life, tmp_path / "calm.db"))
    effects = Counter(printed)
    limit = 0
    while True:
        limit += 1
        database = tmp_path / f"{limit}.db"
        first: list[str] = []
        with Process("auto.example_lives:killed_after", str(database), name, str(limit)) as process:
            while line := process.line():
                first.append(line)
            status = process.wait()
        if status == 0:
            assert first[-1] == "finished"
            break
        assert status == -9
        printed.clear()
        result, _ = run_async(_finish(life, database))
        if name != "coin":  # random, until it is recorded
            assert result == expected, f"after a kill at record {limit}"
            happened = Counter([*first, *printed])
            assert happened.keys() == effects.keys()
            assert (happened - effects).total() <= 1, "more than the call under way was done again"
    assert limit >= 2


async def _resumed(database: Path, dangerous: list[bool]) -> list[Any]:
    module = example("values")
    async with Engine(database, sweep_interval=0.02) as engine:
        run = await engine.start(module.careful(), id="run")
        with pytest.raises(RunFailed, match="too dangerous"):
            await run.result()
        dangerous.clear()
        await engine.admin.resume("run")
        return [await run.result(), [entry.location for entry in await engine.admin.history("run")]]


def test_an_uncaught_failure_can_be_resumed_at_the_call_that_failed(
    printed: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CONFORMANCE A3: what was recorded before, also the fallback, is not done again."""
    dangerous = [True]

    def dangerous_operation() -> None:
        if dangerous:
            raise RuntimeError("too dangerous")
        printed.append("passed")

    monkeypatch.setattr(example("values"), "dangerous_operation", dangerous_operation)
    result, _ = run_async(_resumed(tmp_path / "resumed.db", dangerous))
    assert result == "fallback"
    assert printed == ["trying", "falling back", "passed"]

"""Code that only computes costs what it costs in plain Python: no record, no commit, no other instructions."""

from __future__ import annotations

import dis
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import pytest

from perdure.store.memory import MemoryStore
from perdure.testing import VirtualEngine
from support.faulty_stores import DisturbedStore
from support.lives import run_async

BENCH = Path(__file__).parents[2] / "bench" / "auto.py"


@pytest.fixture(scope="module")
def bench() -> ModuleType:
    """The workflows that the benchmark times."""
    spec = importlib.util.spec_from_file_location("bench_auto", BENCH)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["bench_auto"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


async def _commits_and_records(flow: Any) -> tuple[int, list[str]]:
    store = DisturbedStore(MemoryStore())
    commits = store.note("commit")
    async with VirtualEngine(store=store) as engine:
        await (await engine.start(flow(), id="run")).result()
        return len(commits), [entry.kind for entry in await engine.admin.history("run")]


def _instructions(code: CodeType, lines: set[int]) -> list[tuple[int, str, str]]:
    """What is executed for these lines, without where it jumps to."""
    found, line = [], 0
    for instruction in dis.get_instructions(code):
        position = instruction.positions
        line = (position.lineno if position is not None else None) or line
        if line in lines and instruction.opname not in ("CACHE", "EXTENDED_ARG"):
            jumps = "JUMP" in instruction.opname
            found.append((line, instruction.opname, "" if jumps else instruction.argrepr))
    return found


def test_a_thousand_pure_assignments_add_no_commit_and_no_record(bench: ModuleType, tmp_path: Path) -> None:
    """CONFORMANCE A2: pure expressions cost nothing."""
    without, with_them = bench.made(0, tmp_path), bench.made(bench.ASSIGNMENTS, tmp_path)
    assert run_async(_commits_and_records(with_them)) == run_async(_commits_and_records(without))
    assert run_async(_commits_and_records(without)) == (2, ["started", "step_done", "step_done", "completed"])


def test_pure_assignments_are_compiled_to_the_same_instructions(bench: ModuleType, tmp_path: Path) -> None:
    """CONFORMANCE A2: nothing is asked between two effects."""
    flow = bench.made(len(bench.KINDS) * 5, tmp_path)
    function: Callable[..., Any] = flow.function
    text = Path(function.__code__.co_filename).read_text().splitlines()
    pure = {n for n, line in enumerate(text, 1) if n > 5 and "effect" not in line and ".pop()" not in line}
    assert len(pure) == 5 * (len(bench.KINDS) - 1)
    original = _instructions(function.__code__, pure)
    assert len(original) > 5 * len(pure)
    assert _instructions(flow.spec.function.__code__, pure) == original

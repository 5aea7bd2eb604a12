"""The idempotency key of a step: one per operation, whatever happens to its attempts."""

from __future__ import annotations

import asyncio
from pathlib import Path

from perdure import current_step, step, workflow
from support.effects import Effects
from support.lives import Lives, run_async
from support.processes import Process

keys: list[tuple[str, str, str]] = []


@step(max_attempts=3, initial_delay=0.001)
async def keyed(failures: int) -> str:
    context = current_step()
    keys.append((context.run_id, context.location, context.idempotency_key))
    if context.attempt <= failures:
        raise ValueError
    return context.idempotency_key


@workflow
async def several_keys() -> list[str]:
    first = await keyed(2)
    second = await keyed(0)
    return [first, second, *await asyncio.gather(keyed(1), keyed(0))]


def test_key_is_the_same_on_every_attempt_and_different_for_every_operation(lives: Lives) -> None:
    """CONFORMANCE S6: also between two runs of the same workflow."""
    keys.clear()

    async def main() -> list[str]:
        async with lives.engine() as engine:
            handles = [await engine.start(several_keys(), id=run_id) for run_id in ("a", "b")]
            return [key for handle in handles for key in await handle.result()]

    results = run_async(main())
    assert len(keys) == 2 * (3 + 1 + 2 + 1)
    assert len(set(keys)) == 8, "one key for each operation, over all its attempts"
    assert len(set(results)) == 8


def test_key_survives_a_kill(tmp_path: Path, effects: Effects) -> None:
    """CONFORMANCE S6, FAULTS A8: killed inside the step, run again with the same key; the next step has another."""
    path, env = str(tmp_path / "test.db"), {"EFFECTS": str(effects.path)}
    with Process("steps.crash_children:live", path, "killed_in_a_step", env=env) as process:
        assert {process.line(), process.line()} == {"open", "inside"}
        process.kill()
    with Process("steps.crash_children:live", path, "killed_in_a_step", env={**env, "FINISH": "1"}) as process:
        lines = [process.line() for _ in range(4)]
        assert lines.count("inside") == 2
        assert process.wait() == 0
    first, again, second = (line.split() for line in effects.lines())
    assert first == again, "the attempt that died was not recorded, so it is attempt 1 again, with the same key"
    assert second[1] != first[1]


def test_same_id_in_another_store_has_other_keys(lives: Lives) -> None:
    """CONFORMANCE S6: a key means this operation, not any operation that happens to be called the same."""

    async def main() -> list[str]:
        found: list[str] = []
        for one in (lives.fresh(), lives.fresh()):
            async with one.engine() as engine:
                found += await (await engine.start(several_keys(), id="same")).result()
        return found

    assert len(set(run_async(main()))) == 8

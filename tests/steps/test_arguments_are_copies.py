"""What a step does to its arguments, or a workflow to what it got, reaches neither the other nor the journal."""

from __future__ import annotations

from typing import Any

from perdure import current_step, step, workflow
from support.lives import Lives, run_async

got: list[list[Any]] = []


@step(max_attempts=2, initial_delay=0.001)
async def spoils(items: list[Any], options: dict[str, Any]) -> list[Any]:
    got.append(list(items))
    items.append("spoiled")
    options["spoiled"] = True
    items[0].append("deep")
    if current_step().attempt == 1:
        raise ValueError
    return items


@step
def spoils_in_a_thread(items: list[Any]) -> list[Any]:
    items.clear()
    return items


@workflow
async def hands_out_lists() -> dict[str, Any]:
    items: list[Any] = [[1], 2]
    options: dict[str, Any] = {"a": 1}
    first = await spoils(items, options)
    second = await spoils_in_a_thread(items)
    returned = [list(first), list(second)]
    first.append("mine")
    first[0].append("mine")
    return {"items": items, "options": options, "returned": returned, "first": first}


EXPECTED = {
    "items": [[1], 2],
    "options": {"a": 1},
    "returned": [[[1, "deep", "mine"], 2, "spoiled"], []],
    "first": [[1, "deep", "mine"], 2, "spoiled", "mine"],
}


def test_step_that_changes_its_arguments_changes_nothing_else(lives: Lives) -> None:
    """CONFORMANCE R8, FAULTS D31: live and after a crash at every record the workflow sees what it wrote."""
    got.clear()
    assert run_async(lives.crash_at_every_record(hands_out_lists)) == EXPECTED


def test_every_attempt_gets_fresh_arguments_and_the_record_keeps_the_original(lives: Lives) -> None:
    """CONFORMANCE R8, FAULTS D31: the second attempt does not see what the first one did."""
    got.clear()

    async def main() -> list[Any]:
        async with lives.engine() as engine:
            handle = await engine.start(hands_out_lists())
            await handle.result()
            history = await engine.admin.history(handle.id)
            return [entry.data["args"] for entry in history if entry.kind.startswith("step_")]

    recorded = run_async(main())
    assert [len(items) for items in got] == [2, 2]
    assert len(recorded) == 3
    for arguments in recorded:
        assert "spoiled" not in str(arguments)
        assert "deep" not in str(arguments)

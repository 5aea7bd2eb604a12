"""Values handed to workflow code are fresh: changing one changes nothing that was recorded."""

from __future__ import annotations

from dataclasses import dataclass, field

from kernel.kernel_kit import Drive
from perdure import event, receive, step, workflow
from support.lives import Lives, run_async


@dataclass
class Basket:
    items: list[str] = field(default_factory=list)


@event
@dataclass
class ItemsAdded:
    items: list[str]


@step
async def load_basket(basket: Basket) -> Basket:
    basket.items.append("by the step")
    return Basket(["loaded"])


@step
async def look_at(basket: Basket) -> list[str]:
    return basket.items


@workflow
async def changes_values(basket: Basket) -> list[list[str]]:
    loaded = await load_basket(basket)
    seen = [list(basket.items), list(loaded.items)]
    basket.items.append("by the workflow")
    loaded.items.append("by the workflow")
    added = await receive(ItemsAdded)
    added.items.append("by the workflow")
    seen += [list(basket.items), list(loaded.items), await look_at(loaded)]
    return seen


@workflow
async def changes_an_argument_in_flight() -> list[str]:
    import asyncio

    basket = Basket(["asked"])
    asked = asyncio.create_task(look_at(basket))
    await asyncio.sleep(0)
    basket.items.append("later")
    return await asked


EXPECTED = [
    ["given"],
    ["loaded"],
    ["given", "by the workflow"],
    ["loaded", "by the workflow"],
    ["loaded", "by the workflow"],
]


def test_changing_a_value_changes_nothing_recorded(lives: Lives) -> None:
    """CONFORMANCE R8, FAULTS D30, D31: inputs, results and events are decoded afresh on every replay; a step that
    changes its argument changes neither the workflow's object nor the record."""

    async def main() -> None:
        given = Basket(["given"])

        async def act(engine: object) -> object:
            handle = await engine.start(changes_values(given), id="run")  # type: ignore[attr-defined]
            await handle.send(ItemsAdded(["added"]), key="once")
            return await handle.result()

        # Started, StepDone, EventReceived, StepDone, Completed
        for limit in range(1, 6):
            other = lives.fresh()
            await other.live_until(limit, act)
            async with other.engine() as engine:
                assert await act(engine) == EXPECTED
                history = await engine.admin.history("run")
        assert given == Basket(["given"])
        assert history[0].data["input"] == {"basket": {"items": ["given"]}}
        assert history[1].data["args"] == {"basket": {"items": ["given"]}}
        assert history[1].data["value"] == {"items": ["loaded"]}
        assert history[2].data["value"] == {"items": ["added"]}

    run_async(main())


def test_replaying_from_the_same_records_does_not_share_values() -> None:
    """CONFORMANCE R8: two replays of the very same record objects see the same, whatever the first did to it."""
    with Drive(changes_values(Basket(["given"]))) as drive:
        drive.finish("load_basket", Basket(["loaded"]))
        drive.receive("receive", ItemsAdded(["added"]))
        drive.finish("look_at", ["loaded", "by the workflow"])
        outcomes = [drive.run.outcome]
        for _ in range(2):
            run = drive._new()
            run.replay(drive.records, None)
            outcomes.append(run.outcome)
        assert outcomes[0] == outcomes[1] == outcomes[2] is not None


def test_a_step_sees_its_arguments_as_they_were_when_it_was_asked_for(lives: Lives) -> None:
    """CONFORMANCE R8: what the workflow does to an argument afterwards does not reach the step."""

    async def main() -> list[str]:
        async with lives.engine() as engine:
            return await (await engine.start(changes_an_argument_in_flight())).result()

    assert run_async(main()) == ["asked"]

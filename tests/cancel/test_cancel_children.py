"""Cancelling parents and children: down to the children, and up as an error."""

from __future__ import annotations

import asyncio

import pytest

from perdure import ChildCancelled, RunCancelled, RunFailed, start_child, step, workflow
from perdure.store.model import Status
from support.lives import Lives, run_async, until

did: list[str] = []


@pytest.fixture(autouse=True)
def fresh() -> None:
    did.clear()


@step
async def works_long(who: str) -> str:
    did.append(f"{who} began")
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        did.append(f"{who} cancelled")
        raise
    return who


@step
async def cleans_up(who: str) -> None:
    did.append(f"{who} cleaned up")


@workflow
async def grandchild_to_cancel() -> str:
    try:
        return await works_long("grandchild")
    finally:
        await cleans_up("grandchild")


@workflow
async def child_to_cancel() -> str:
    return await grandchild_to_cancel()


@workflow
async def parent_to_cancel(how: str) -> str:
    match how:
        case "await":
            return await child_to_cancel()
        case "handle":
            child = await start_child(child_to_cancel(), id="child")
            return await child
        case "detached":
            await start_child(child_to_cancel(), id="child", detach=True)
            return await works_long("parent")
        case "catches":
            try:
                return await child_to_cancel()
            except ChildCancelled as error:
                return f"caught {error.message}"
        case _:
            raise AssertionError(how)


@pytest.mark.parametrize("how", ["await", "handle"])
def test_cancelling_the_parent_cancels_its_children(lives: Lives, how: str) -> None:
    """CONFORMANCE L1: three deep; the step at the bottom is cancelled and its cleanup runs."""
    child = "child" if how == "handle" else "run/child_to_cancel"

    async def main() -> None:
        async with lives.engine() as engine:
            handle = await engine.start(parent_to_cancel(how), id="run")
            await until(lambda: "grandchild began" in did)
            assert await handle.cancel("from the top")
            with pytest.raises(RunCancelled, match="from the top"):
                await handle.result()
            for run_id in (child, f"{child}/grandchild_to_cancel"):
                with pytest.raises(RunCancelled, match="parent"):
                    await engine.result(run_id, timeout=10)
            assert {view.status for view in await engine.list()} == {Status.CANCELLED}

    run_async(main())
    assert did == ["grandchild began", "grandchild cancelled", "grandchild cleaned up"]


def test_terminating_the_parent_cancels_its_children(lives: Lives) -> None:
    """CONFORMANCE L1: the parent is ended from outside, its children are asked."""

    async def main() -> None:
        async with lives.engine() as engine:
            await engine.start(parent_to_cancel("await"), id="run")
            await until(lambda: "grandchild began" in did)
            assert await engine.admin.terminate("run", "now")
            for run_id in ("run/child_to_cancel", "run/child_to_cancel/grandchild_to_cancel"):
                with pytest.raises(RunCancelled):
                    await engine.result(run_id, timeout=10)

    run_async(main())
    assert did[-1] == "grandchild cleaned up"


def test_detached_child_goes_on(lives: Lives) -> None:
    """CONFORMANCE L1: `detach=True` is independent."""

    async def main() -> None:
        async with lives.engine(shutdown_grace=0) as engine:
            handle = await engine.start(parent_to_cancel("detached"), id="run")
            await until(lambda: {"grandchild began", "parent began"} <= set(did))
            await handle.cancel()
            with pytest.raises(RunCancelled):
                await handle.result()
            assert not (await engine.status("child")).cancel_requested
            assert not (await engine.status("child")).status.terminal

    run_async(main())


@pytest.mark.parametrize("verb", ["cancel", "terminate"])
def test_cancelled_child_is_an_error_in_its_parent(lives: Lives, verb: str) -> None:
    """CONFORMANCE L1: the parent hears `ChildCancelled` and may go on; it is not cancelled itself."""

    async def main() -> str:
        async with lives.engine() as engine:
            handle = await engine.start(parent_to_cancel("catches"), id="run")
            await until(lambda: "grandchild began" in did)
            assert await getattr(engine.admin, verb)("run/child_to_cancel", "only the child")
            result = await handle.result(timeout=10)
            assert not (await handle.status()).cancel_requested
            return result

    result = run_async(main())
    assert "run/child_to_cancel" in result
    assert "only the child" in result


def test_cancelled_child_fails_a_parent_that_does_not_catch_it(lives: Lives) -> None:
    """CONFORMANCE L1: failed, not cancelled: nobody cancelled the parent."""

    async def main() -> BaseException | None:
        async with lives.engine() as engine:
            handle = await engine.start(parent_to_cancel("await"), id="run")
            await until(lambda: "grandchild began" in did)
            await engine.cancel("run/child_to_cancel")
            with pytest.raises(RunFailed) as caught:
                await handle.result(timeout=10)
            return caught.value.__cause__

    assert isinstance(run_async(main()), ChildCancelled)


def test_cancel_reaches_children_over_a_crash(lives: Lives) -> None:
    """CONFORMANCE L1: the worker dies right after the request was accepted."""

    async def main() -> None:
        async with lives.engine() as engine:
            await engine.start(parent_to_cancel("await"), id="run")
            await until(lambda: "grandchild began" in did)
            await lives.crash(engine)
        async with lives.engine(worker=False) as client:
            await client.cancel("run", "after the crash")
        async with lives.engine() as engine:
            for run_id in ("run", "run/child_to_cancel", "run/child_to_cancel/grandchild_to_cancel"):
                with pytest.raises(RunCancelled):
                    await engine.result(run_id, timeout=10)

    run_async(main())
    assert did[-1] == "grandchild cleaned up"

"""Context variables keep their values over awaits and replay."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar

from kernel.kernel_kit import Drive
from perdure import sleep, step, workflow
from support.lives import Lives, run_async

tenant: ContextVar[str] = ContextVar("tenant", default="nobody")


@step
async def pass_time(number: int) -> int:
    return number


async def of_branch(name: str) -> list[str]:
    seen = [tenant.get()]
    tenant.set(name)
    await pass_time(1)
    seen.append(tenant.get())
    await sleep(0.001)
    return [*seen, tenant.get()]


@workflow
async def with_variables() -> list[list[str]]:
    seen = [[tenant.get()]]
    tenant.set("main")
    await pass_time(0)
    seen += await asyncio.gather(of_branch("a"), of_branch("b"))
    seen.append([tenant.get()])
    token = tenant.set("inner")
    await sleep(0.001)
    tenant.reset(token)
    await pass_time(2)
    return [*seen, [tenant.get()]]


EXPECTED = [["nobody"], ["main", "a", "a"], ["main", "b", "b"], ["main"], ["main"]]


def test_variables_keep_their_values_over_awaits_and_crashes(lives: Lives) -> None:
    """CONFORMANCE P5, FAULTS D37: each branch has its own, with a crash at every record."""
    assert run_async(lives.crash_at_every_record(with_variables)) == EXPECTED


def test_the_host_does_not_leak_into_a_run(lives: Lives) -> None:
    """FAULTS D37: what the caller of `start` had set would be gone on replay, so it is not there live either."""

    async def main() -> list[list[str]]:
        tenant.set("the host")
        async with lives.engine() as engine:
            return await (await engine.start(with_variables())).result()

    assert run_async(main()) == EXPECTED


def test_runs_do_not_see_each_other() -> None:
    """CONFORMANCE P5: two runs pumped from one thread keep their variables apart."""
    with Drive(with_variables()) as one, Drive(with_variables()) as two:
        one.finish("pass_time", 0)
        two.finish("pass_time", 0)
        assert tenant.get() == "nobody"

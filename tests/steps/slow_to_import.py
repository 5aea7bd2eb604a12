"""A module whose import takes longer than the timeout of its step."""

from __future__ import annotations

import time

from perdure import step, workflow

time.sleep(0.5)


@step(isolation="process", timeout=0.4, max_attempts=1)
def quick() -> str:
    return "quick"


@workflow
async def slowly_imported() -> str:
    return await quick()

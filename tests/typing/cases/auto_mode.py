"""Auto mode keeps types whole."""

import asyncio
from typing import assert_type

import perdure
from perdure import options, workflow


def fetch(url: str, tries: int = 1) -> bytes:
    return url.encode() * tries


async def fetch_later(url: str) -> bytes:
    return url.encode()


@workflow(auto=True)
def plain(url: str) -> int:
    page = options(fetch, max_attempts=5)(url, tries=2)
    assert_type(page, bytes)
    return len(page)


@workflow(auto=True, version="2", max_attempts=5, timeout="10 s")
async def with_await(url: str) -> int:
    page = fetch(url)
    later = await options(fetch_later, timeout=3)(url)
    both = await asyncio.gather(fetch_later(url), fetch_later(url))
    return len(page) + len(later) + len(both)


assert_type(perdure.run(plain("x")), int)
assert_type(perdure.run(with_await("x")), int)

plain(3)  # E
options(fetch, max_attempts=5)(3)  # E
options(fetch, tries=5)  # E
workflow(auto=True, tries=3)  # E

"""The pytest plugin of perdure. It loads by itself and imports nothing of perdure until a test uses it: therefore it
is a module beside the package, which pytest can load without the package.

- the fixture `engine`: a `VirtualEngine`, for async and for plain tests
- `async def` tests that take it are run here, unless another plugin (pytest-asyncio, anyio) runs them
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from perdure.testing.engine import VirtualEngine

_FIXTURE = "engine"

# Its checks are plain asserts; rewritten, they show what differed.
pytest.register_assert_rewrite("perdure.testing.store")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "perdure(**options): options of the `engine` fixture, such as perdure(always_replay=True)"
    )


@pytest.fixture
def engine(request: pytest.FixtureRequest) -> Iterator[VirtualEngine]:
    """An engine in memory with virtual time: `VirtualEngine(**options)`, options from `@pytest.mark.perdure(...)`."""
    from perdure.testing.engine import VirtualEngine

    options: dict[str, Any] = {}
    for mark in reversed(list(request.node.iter_markers("perdure"))):  # the closest one counts
        options.update(mark.kwargs)
    one = VirtualEngine(**options)
    try:
        yield one
    finally:
        one.shut()


@pytest.hookimpl
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if not inspect.iscoroutinefunction(pyfuncitem.obj) or _FIXTURE not in pyfuncitem.funcargs:
        return None
    from perdure.testing.engine import VirtualEngine

    one = pyfuncitem.funcargs[_FIXTURE]
    if not isinstance(one, VirtualEngine):  # somebody else's fixture of this name
        return None
    names = pyfuncitem._fixtureinfo.argnames
    one.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True

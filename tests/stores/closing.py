"""The child of `test_sqlite_close`."""

from __future__ import annotations

import threading

from perdure import Engine, limits
from perdure.errors import StoreUnavailable
from perdure.store.sqlite import SQLiteStore


async def close_with_a_writer_that_hangs(path: str) -> None:
    limits.CLOSE_SECONDS_MAX = 0.2  # type: ignore[misc]
    store = SQLiteStore(path)
    engine = await Engine(store).open()
    hanging = store.writer.submit(lambda _: threading.Event().wait(), ())
    try:
        await engine.close(grace=0.1)
    except StoreUnavailable as error:
        print(type(error).__name__, flush=True)
    hanging.cancel()

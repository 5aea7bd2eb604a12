"""The child side of `support.processes`: calls `<module>:<function>` with the rest of the command line."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import signal
import sys


def main() -> None:
    # A shell starts what runs in the background with SIGINT ignored, and children inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    module, _, name = sys.argv[1].partition(":")
    function = getattr(importlib.import_module(module), name)
    result = function(*sys.argv[2:])
    if inspect.isawaitable(result):

        async def wait() -> None:
            await result

        asyncio.run(wait())


if __name__ == "__main__":
    main()

"""The child side of `support.processes`: calls `<module>:<function>` with the rest of the command line."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import sys


def main() -> None:
    module, _, name = sys.argv[1].partition(":")
    function = getattr(importlib.import_module(module), name)
    result = function(*sys.argv[2:])
    if inspect.isawaitable(result):

        async def wait() -> None:
            await result

        asyncio.run(wait())


if __name__ == "__main__":
    main()

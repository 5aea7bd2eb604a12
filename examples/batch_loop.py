"""A long import, page by page, in one run whose journal stays small however many pages there are.

Run it: `python examples/batch_loop.py`. Kill it and run it again: it goes on with the page it was at.
`examples/batch.py` does the same with `continue_as`.
"""

import asyncio
import sys
from dataclasses import dataclass

from perdure import Break, Engine, loop, status, step, traverse, workflow

ROWS = 500
PAGE_SIZE = 10


@dataclass
class Progress:
    cursor: int = 0
    imported: int = 0


@step
async def fetch(cursor: int) -> list[int]:
    return list(range(cursor, min(cursor + PAGE_SIZE, ROWS)))


@step
async def store_row(row: int) -> int:
    await asyncio.sleep(0.001)
    return row


@workflow
async def import_all() -> int:
    async def page(progress: Progress) -> Progress | Break[int]:
        rows = await fetch(progress.cursor)
        if not rows:
            return Break(progress.imported)
        stored = await traverse(rows, store_row, limit=5)  # five at a time, each recorded by itself
        status(f"{progress.cursor + len(rows)} of {ROWS}")
        return Progress(progress.cursor + len(rows), progress.imported + len(stored))

    return await loop(page, Progress(), keep=2)


async def main(store: str) -> None:
    async with Engine(store) as engine:
        run = await engine.start(import_all(), id="import")
        print("importing", (await run.status()).custom_status or "from the beginning", flush=True)
        print(await run.result(), "rows imported")
        view = await run.status()
        print(f"{view.records} records in the journal, {view.pruned} pruned")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "import.db"))

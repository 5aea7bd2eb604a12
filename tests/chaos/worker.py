"""A worker process of the fleet under fire."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from pathlib import Path

from chaos import work
from perdure import Engine
from perdure.store.postgres import PostgresStore


async def serve(url: str, name: str, folder: str, lease: str) -> None:
    """Work until killed. Logs go to the standard error, effects to a file of this process."""
    logging.basicConfig(
        stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s", force=True
    )
    path = Path(folder) / f"effects-{name}-{os.getpid()}.txt"
    work.descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    engine = Engine(PostgresStore(f"{url}&application_name={name}"), name=name, lease=float(lease), sweep_interval=0.5)
    work.engine = engine
    while True:
        try:
            await engine.open()
            break
        except Exception as error:  # as a supervisor would start it again
            logging.getLogger("chaos").info("not open yet: %s", error)
            await asyncio.sleep(0.5)
    print("ready", flush=True)
    parent = os.getppid()
    while os.getppid() == parent:  # a harness that is killed leaves nobody behind
        await asyncio.sleep(1.0)
    os._exit(1)

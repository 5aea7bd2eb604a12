"""`import perdure` is cheap: a script or a CLI command must not wait for it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

LIMIT_SECONDS = 0.080

#: What asyncio and msgspec, which nobody can do without here, take of it on an idle machine.
NEEDED_SECONDS = 0.045

CODE = """
import time
begun = time.process_time(); import asyncio, msgspec; needed = time.process_time() - begun
import perdure; print(needed, time.process_time() - begun)
"""


def _seconds(cache: Path) -> tuple[float, float]:
    # With the byte code of an installed package, whatever the environment of the tests says about writing it.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPYCACHEPREFIX"] = str(cache)
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True, env=environment)
    needed, whole = done.stdout.split()
    return float(needed), float(whole)


def test_importing_perdure_takes_under_80_milliseconds(tmp_path: Path) -> None:
    """Processor time, the best of several tries. A machine so busy that asyncio alone takes longer than it should
    is given longer in the same proportion: it says nothing about us."""
    tries = []
    _seconds(tmp_path)
    for _ in range(12):
        needed, whole = _seconds(tmp_path)
        tries.append(whole / max(1.0, needed / NEEDED_SECONDS))
        if min(tries) < LIMIT_SECONDS:
            return
    raise AssertionError(f"the fastest import took {min(tries) * 1000:.0f} ms")


def test_importing_perdure_loads_none_of_its_optional_parts() -> None:
    """The web UI, PostgreSQL, telemetry and the CLI's libraries are loaded by those who use them."""
    code = "import sys, perdure; print(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    optional = {"rich", "click", "psycopg", "starlette", "uvicorn", "opentelemetry", "pydantic", "pytest"}
    assert not loaded & optional

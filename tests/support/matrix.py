"""The store suite on every PostgreSQL that we can start, direct and through PgBouncer: `make test-postgres-matrix`.

    python -m support.matrix [18 16 15]        with PYTHONPATH=tests

Directly, everything that is particular to PostgreSQL is run, too. A version or a pooler that is not installed is left
out, which the last lines say. Ends with 1 if something failed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from support.postgres import NoServer, find_pooler, find_programs

ROOT = Path(__file__).parents[2]
VERSIONS = (18, 16, 15)
_SUITE = ("tests/stores/test_suite.py", "-k", "TestPostgres")
_ALL_OF_STORES = ("tests/stores", "-k", "postgres")


def missing(version: int, pooled: bool) -> str | None:
    """Why this cannot be run here."""
    try:
        find_programs(version)
        if pooled:
            find_pooler()
    except NoServer as error:
        return str(error)
    return None


def run(version: int, pooled: bool) -> bool:
    environment = {**os.environ, "PERDURE_TEST_STORES": "postgres", "PERDURE_TEST_PG_VERSION": str(version)}
    if pooled:
        environment["PERDURE_TEST_PG_POOLER"] = "pgbouncer"
    command = [sys.executable, "-m", "pytest", "-n", "auto", "--dist", "worksteal", "-q", "-m", "not long"]
    what = _SUITE if pooled else _ALL_OF_STORES
    return subprocess.run([*command, *what], cwd=ROOT, env=environment, check=False).returncode == 0


def lines(versions: list[int]) -> Iterator[tuple[str, bool]]:
    """A line for each, and whether it is one to worry about."""
    for version in versions:
        for pooled in (False, True):
            name = f"PostgreSQL {version} {'through PgBouncer' if pooled else 'direct'}"
            why_not = missing(version, pooled)
            if why_not is not None:
                yield f"{name}: NOT TESTED. {why_not}", False
                continue
            print(f"== {name}", flush=True)
            began = time.monotonic()
            passed = run(version, pooled)
            yield f"{name}: {'passed' if passed else 'FAILED'} in {time.monotonic() - began:.0f} s", not passed


def main(words: list[str]) -> int:
    found = list(lines([int(word) for word in words] or list(VERSIONS)))
    print("\n".join(line for line, _ in found))
    return int(any(failed for _, failed in found))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

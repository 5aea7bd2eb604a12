"""`perdure demo --fleet`: the real thing, on a real server."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from support.postgres import server


def demo(tmp_path: Path, *options: str) -> subprocess.CompletedProcess[str]:
    found = server()
    plain = "?sslmode=disable&gssencmode=disable" if found.version is not None else ""
    return subprocess.run(
        [sys.executable, "-m", "perdure", "demo", "--fleet", "--store", f"{found.base_url}{plain}", *options],
        capture_output=True,
        text=True,
        timeout=90,
        cwd=tmp_path,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )


def schemas() -> list[str]:
    return [name for (name,) in server().execute("SELECT nspname FROM pg_namespace WHERE nspname LIKE 'perdure_demo%'")]


def test_a_fleet_survives_a_kill_and_a_stop(tmp_path: Path) -> None:
    """CONFORMANCE W3, FAULTS C3, C4: all checks hold, in 80 columns and under a minute; then nothing of it is left."""
    done = demo(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "FAILED" not in done.stdout
    assert done.stdout.count("  ok    ") == 12
    for part in ("kill -9 worker", "kill -STOP worker", "kill -CONT worker", "order-24", "goes on under the new id"):
        assert part in " ".join(done.stdout.split())
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert float(done.stdout.split()[-2]) < 60
    assert server().base_url.partition("@")[0] not in done.stdout + done.stderr, "the URL with its password"
    assert list(tmp_path.iterdir()) == []
    assert schemas() == []

"""Run what the twins in C have a part in with a build of them that watches itself: `make test-sanitized`.

The compiler's sanitizers end the process at the first read or write of memory that is not the twin's to touch, and at
the first operation that C leaves undefined. Python's own allocator is left aside, so that every object is a block that
they know. `python -m support.sanitized -m fuzz values 10000 0` runs a module in this way instead of tests.
Needs a compiler that has them (gcc and clang do, with their runtime libraries).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
#: Every file of tests in these has something to do with the twins.
GROUPS = ("native", "kernel", "steps", "replay", "races", "compose", "plain_python")
FLAGS = ("-O1", "-g", "-fno-omit-frame-pointer", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined")
RUNTIMES = ("libasan.so", "libubsan.so")


def _compiler() -> list[str]:
    return (sysconfig.get_config_var("CC") or "cc").split()


def _build(source: Path, folder: Path) -> None:
    """A copy of the package with twins that watch themselves."""
    shutil.copytree(source, folder, ignore=shutil.ignore_patterns("__pycache__", "*.so", "*.pyd"))
    suffix, include = sysconfig.get_config_var("EXT_SUFFIX"), sysconfig.get_paths()["include"]
    native = folder / "perdure" / "native"
    for code in sorted(native.glob("*.c")):
        target = native / f"_{code.stem}{suffix}"
        command = [*_compiler(), "-shared", "-fPIC", *FLAGS, f"-I{include}", str(code), "-o", str(target)]
        subprocess.run(command, check=True)


def _runtimes() -> str:
    """The libraries that have to be in the process before Python is: it was not built with sanitizers itself."""
    found = [
        subprocess.run([_compiler()[0], f"-print-file-name={name}"], check=True, capture_output=True, text=True)
        for name in RUNTIMES
    ]
    paths = [each.stdout.strip() for each in found]
    missing = [path for path in paths if not os.path.isabs(path)]
    if missing:
        raise SystemExit(f"{' and '.join(missing)} of {_compiler()[0]} cannot be found. Install its sanitizers first.")
    return " ".join(paths)


def main(groups: Sequence[str]) -> int:
    runtimes = _runtimes()
    with tempfile.TemporaryDirectory(prefix="perdure-sanitized-") as folder:
        copy = Path(folder) / "src"
        _build(ROOT / "src", copy)
        environment = os.environ | {
            "PYTHONPATH": str(copy),
            "LD_PRELOAD": runtimes,
            # What Python keeps until the process ends is no leak of ours; tests/native/test_memory.py counts those.
            "ASAN_OPTIONS": "detect_leaks=0",
            "UBSAN_OPTIONS": "print_stacktrace=1",
            "PYTHONMALLOC": "malloc",
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        where = "import perdure.native as native; assert native.IN_USE; print(native.__file__)"
        told = subprocess.run(
            [sys.executable, "-c", where], env=environment, check=True, capture_output=True, text=True, cwd=ROOT
        )
        if not told.stdout.startswith(folder):
            raise SystemExit(f"the twins in use are those of {told.stdout.strip()}, not of {folder}")
        if groups[0] == "-m":
            return subprocess.run(
                [sys.executable, *groups], env=environment, cwd=ROOT / "tests", check=False
            ).returncode
        tests = [f"tests/{group}" for group in groups]
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-n",
            "auto",
            "-q",
            "-m",
            "not long",
            "-p",
            "no:cacheprovider",
            *tests,
        ]
        return subprocess.run(command, env=environment, cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:] or GROUPS))

"""What the figures were taken on."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import apsw

from bench.interpreter import is_of_bench

#: The name of the fact that says whether others were at work.
LOAD = "load when it began"


def facts(directory: Path) -> dict[str, str]:
    """Facts a reader needs to compare figures with their own."""
    return {
        "processor": _processor(),
        "cores": str(os.cpu_count()),
        "memory": _memory(),
        "system": f"{platform.system()} {platform.release()}",
        "file system": _file_system(directory),
        "Python": f"{platform.python_implementation()} {platform.python_version()}{_how_chosen()}",
        "SQLite": f"{apsw.sqlite_lib_version()} (apsw {apsw.apsw_version()})",
        LOAD: ", ".join(f"{value:.2f}" for value in os.getloadavg()),
    }


def _how_chosen() -> str:
    return ", the quickest build of this machine" if is_of_bench() else ""


def _processor() -> str:
    return _first_value("/proc/cpuinfo", "model name", ":") or platform.processor() or platform.machine()


def _memory() -> str:
    found = _first_value("/proc/meminfo", "MemTotal", ":")
    return f"{int(found.split()[0]) / 2**20:.0f} GiB" if found else "unknown"


def _first_value(path: str, name: str, separator: str) -> str:
    try:
        for line in Path(path).read_text().splitlines():
            if line.startswith(name):
                return line.partition(separator)[2].strip()
    except OSError:
        pass
    return ""


def _file_system(directory: Path) -> str:
    """The kind of the mount that holds a directory: the longest mount point that is one of its parents."""
    best, kind = "", "unknown"
    try:
        mounts = Path("/proc/mounts").read_text().splitlines()
    except OSError:
        return kind
    for line in mounts:
        _device, point, name, *_ = line.split()
        if directory.resolve().is_relative_to(point) and len(point) >= len(best):
            best, kind = point, name
    return kind

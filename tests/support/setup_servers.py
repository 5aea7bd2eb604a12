"""Installs the servers of the tests that no wheel brings: `make setup-servers`. Debian and its relatives only.

PostgreSQL 15 and PgBouncer. Debian also starts one of each as a service; the tests do not need these and start their
own, on free ports: `systemctl disable --now postgresql pgbouncer`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

from support.postgres import NoServer, find_pooler, find_programs

_HAND = "Install these by hand; without them `make test-postgres-matrix` leaves out what needs them, and says so."


def missing() -> list[str]:
    """Packages that are not there."""
    packages: list[str] = []
    for package, find in (("postgresql-15", lambda: str(find_programs(15))), ("pgbouncer", find_pooler)):
        try:
            find()
        except NoServer:
            packages.append(package)
    return packages


def install(packages: list[str]) -> bool:
    if shutil.which("apt-get") is None:
        print(f"there is no apt-get here to install {' and '.join(packages)} with.")
        return False
    before = [] if os.geteuid() == 0 else ["sudo"]
    # A new machine may know no package, or an old list of them.
    subprocess.run([*before, "apt-get", "update", "-q"], check=False, stdout=subprocess.DEVNULL)
    command = [*before, "apt-get", "install", "-y", "--no-install-recommends", *packages]
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    return subprocess.run(command, env=environment, check=False).returncode == 0


def main() -> int:
    packages = missing()
    if packages and not install(packages):
        print(f"{' and '.join(packages)} could not be installed. {_HAND}")
        return 1
    print("PostgreSQL 15 and PgBouncer are there; 16 and 18 come with the wheel.")
    return 0


if __name__ == "__main__":
    sys.exit(main())

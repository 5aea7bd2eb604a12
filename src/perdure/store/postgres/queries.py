"""The statements of the PostgreSQL store: `queries.sql`, by name."""

from pathlib import Path
from typing import Final

from perdure.store.sql.queries import load

SQL: Final = load(Path(__file__).with_name("queries.sql"))

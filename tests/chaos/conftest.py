"""Tests of a fleet need PostgreSQL: `make test-postgres`, or any run that does not leave it out."""

from support.lives import STORES

collect_ignore_glob = [] if "postgres" in STORES else ["test_*.py"]

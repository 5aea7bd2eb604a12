"""What says `needs a server` needs PostgreSQL: `make test-postgres`, or any run that does not leave it out."""

from support.lives import STORES

collect_ignore = [] if "postgres" in STORES else ["test_postgres_messages.py"]

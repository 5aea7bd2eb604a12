"""What the stores on SQL databases do alike: the store protocol, in terms of named statements.

Each function is a part of one call of the protocol and runs inside a transaction of its caller, on a `Session`. A store
brings the texts of the statements (`queries.sql`, the same names with the same parameters), connections, threads, and
what only it does: how groups are committed fast, who is alive, what is new.

    store.sqlite     one writer at a time: the locks of a session do nothing
    store.postgres   many writers: docs/reference/locks.md says in which order they lock
"""

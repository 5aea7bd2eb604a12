"""The `perdure` command: one module per command, plus what they share.

`main` finds commands by name and imports only the one that runs. `session` is the door to the engine, `apps`
imports the user's workflows, `text` makes anything from a store safe to show, `output` prints it, `exits` says
how it went.
"""

"""What workflow code calls.

Each verb finds its run through the running loop (`verbs.current`), so that it works in helpers and nested tasks without
a context argument; outside a workflow it raises `NotInWorkflow`.
"""

"""`perdure send`: an event from the command line. Needs no --app; with one, the data is checked first."""

from __future__ import annotations

import difflib

import click
import msgspec

from perdure import limits
from perdure.authoring.registry import check_name, registry
from perdure.cli import output
from perdure.cli.apps import import_apps
from perdure.cli.command import durable, event_options, json_option, read_argument, run_id_argument
from perdure.cli.session import session
from perdure.cli.text import identity
from perdure.errors import BadArgument, TooLarge
from perdure.kernel.definitions import DEFAULT_POLICY


@click.command()
@run_id_argument
@event_options
@json_option
@durable
async def send(
    run_id: str, event_name: str, store: str, apps: tuple[str, ...], data: str, key: str | None, as_json: bool
) -> None:
    """Send an event to a run: durable when this returns, and a worker in another process wakes at once.

    Without --app the data is sent as it is, and checked when the run receives it; it does not expire, and becomes a
    dead letter if it cannot be delivered.
    """
    import_apps(apps)
    raw = checked_event(event_name, read_argument(data), known=bool(apps))
    async with session(store) as opened:
        spec = registry.event(event_name)
        policy = spec.policy if spec is not None else DEFAULT_POLICY
        await opened.admin.send_json(run_id, event_name, raw, key=key, policy=policy)
    if as_json:
        output.print_json({"id": run_id, "event": event_name, "sent": True})
    else:
        output.print_line(f"{identity(run_id)}: sent {identity(event_name)}")


def checked_event(name: str, text: str, *, known: bool) -> bytes:
    """The event's data as it is stored. `known`: the user's code is here, so the event must be too."""
    try:
        check_name(name, "an event")
    except Exception as error:
        raise BadArgument(str(error)) from None
    data = _json_bytes(text)
    spec = registry.event(name)
    if spec is None:
        if known:
            raise BadArgument(f"no event is called {name!r} in the given --app.{_close(name)}")
        return data
    what = f"the event {name!r}"
    return spec.codec.encode(spec.codec.decode(data, what), what)


def _json_bytes(text: str) -> bytes:
    try:
        data = msgspec.json.encode(msgspec.json.decode(text.encode()))
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise BadArgument(f'--data is not JSON: {error}. Write for example --data \'{{"by": "ann"}}\'.') from None
    if len(data) > limits.VALUE_BYTES_MAX:
        raise TooLarge(f"--data is {len(data)} bytes; an event has at most {limits.VALUE_BYTES_MAX}.")
    return data


def _close(name: str) -> str:
    close = difflib.get_close_matches(name, registry.event_names(), n=3)
    return f" Did you mean {' or '.join(repr(one) for one in close)}?" if close else ""

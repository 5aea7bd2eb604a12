"""`perdure publish` and `perdure events`: events for every run that may have them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import click
from rich.text import Text

from perdure.admin.views import PublishedView
from perdure.authoring.registry import registry
from perdure.cli import output
from perdure.cli.apps import import_apps
from perdure.cli.command import durable, event_options, json_option, paged_events, read_argument, store_option
from perdure.cli.send import checked_event
from perdure.cli.session import look, session
from perdure.cli.text import age, identity, now, shortened, value_text
from perdure.errors import BadArgument


@click.command()
@event_options
@json_option
@durable
async def publish(
    event_name: str, store: str, apps: tuple[str, ...], data: str, key: str | None, as_json: bool
) -> None:
    """Publish an event: durable when this returns. Needs --app, because the event's class says who gets it."""
    import_apps(apps)
    if not apps:
        raise BadArgument("publish needs --app: the class of the event says who gets it (`@event(delivery=...)`).")
    raw = checked_event(event_name, read_argument(data), known=True)
    spec = registry.event(event_name)
    if spec is None:
        raise AssertionError("checked_event knows every event that it lets through")
    async with session(store) as opened:
        await opened.admin.publish_json(event_name, raw, key=key, policy=spec.policy)
    if as_json:
        output.print_json({"event": event_name, "published": True})
    else:
        output.print_line(f"published {identity(event_name)}")


@click.command()
@store_option
@paged_events
@json_option
@durable
async def events(store: str, event_type: str | None, limit: int, after: int, as_json: bool) -> None:
    """List published events that somebody may still get, oldest first, and how many went away unread."""
    async with look(store) as opened:
        published = await opened.admin.published(type=event_type, limit=limit, after=after)
        expired = await opened.admin.expired_events()
    if as_json:
        following = published[-1].id if len(published) == limit else None
        output.print_json({"events": published, "expired": expired, "next": following})
    else:
        _print(published, expired, limit)


def _print(published: Sequence[PublishedView], expired: Mapping[str, int], limit: int) -> None:
    table = output.table("number", "event", "data", "for", "age", "expires in")
    for one in published:
        left = "" if one.expires_at is None else f"{max(0.0, (one.expires_at - now()).total_seconds()):.0f} s"
        who = one.delivery if one.holder is None else f"held by {identity(one.holder)}"
        table.add_row(
            Text(str(one.id)),
            Text(identity(one.type)),
            Text(shortened(value_text(one.data))),
            Text(f"{who}, {'one run' if one.consume or one.delivery == 'first' else 'every run'}"),
            Text(age(one.published_at)),
            Text(left),
        )
    console = output.console()
    console.print(table)
    if not published:
        console.print(Text("Nothing published that somebody may still get.", style="dim"))
    if expired:
        gone = ", ".join(f"{count} {identity(kind)}" for kind, count in expired.items())
        console.print(Text(f"Gone unread when their time was over: {gone}", style="dim"))
    if len(published) == limit:
        console.print(Text(f"More: --after {published[-1].id}", style="dim"))

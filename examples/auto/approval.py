"""Calls go out without ceremony; only what comes in from outside is awaited: time that passes, a person who decides.

Run it: `python examples/auto/approval.py`.
"""

import asyncio
from dataclasses import dataclass

from perdure import Engine, event, receive, sleep, workflow


@event
@dataclass
class Decision:
    approved: bool


def http_get(url: str) -> str:
    print("GET", url, flush=True)
    return f"the page at {url}"


def db_query(sql: str) -> list[str]:
    print("querying", sql, flush=True)
    return ["ann", "bob"]


def send_email(to: str, body: str) -> None:
    print("mail to", to, flush=True)


def process(resp: str, decision: Decision) -> str:
    print("processing", flush=True)
    return f"{resp}: {'approved' if decision.approved else 'refused'}"


@workflow(auto=True)
async def review(url: str, wait: str = "7 days") -> str:
    resp = http_get(url)  # we call: recorded, instant on replay
    rows = db_query("select name from reviewers")  # we call: recorded, instant on replay
    for to in rows:
        send_email(to, f"please look at {url}")
    await sleep(wait)  # time passes: awaited
    decision = await receive(Decision)  # somebody decides: awaited
    return process(resp, decision)


async def main() -> None:
    async with Engine("approval.db") as engine:
        run = await engine.start(review("https://example.org", wait="1 second"), id="review-1")
        await run.send(Decision(approved=True), key="decision")
        print(await run.result())


if __name__ == "__main__":
    asyncio.run(main())

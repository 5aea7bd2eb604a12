"""A payment with a retry policy: for all calls of the workflow, or around one of them.

Run it: `python examples/auto/payment.py`.
"""

import asyncio
from dataclasses import dataclass

from perdure import Engine, options, workflow
from perdure.types import FailedAttempt


@dataclass
class Order:
    id: str
    cents: int


@dataclass
class Payment:
    order_id: str
    receipt: str


class TransientError(Exception):
    pass


def fetch_order(order_id: str) -> Order:
    print("fetching", order_id, flush=True)
    return Order(order_id, 1999)


def process_payment(order: Order) -> Payment:
    print("charging", order.cents, flush=True)
    return Payment(order.id, f"receipt-{order.id}")


def send_receipt(payment: Payment) -> None:
    print("mailing", payment.receipt, flush=True)


def tell(failed: FailedAttempt) -> None:
    print(f"attempt {failed.attempt} of {failed.location} failed: {failed.error}", flush=True)


@workflow(
    auto=True,
    max_attempts=3,
    initial_delay=0.01,
    max_delay="30 s",
    retry_on=(TimeoutError, TransientError),
    on_retry=tell,
)
def payment_workflow(order_id: str) -> Payment:
    order = fetch_order(order_id)
    payment = process_payment(order)
    options(send_receipt, max_attempts=1)(payment)  # no retries
    return payment


def http_call(name: str) -> str:
    print("calling", name, flush=True)
    return f"answer to {name}"


@workflow(auto=True)
def three_policies() -> list[str]:
    return [
        http_call("with the default"),  # three attempts, with growing pauses between them
        options(http_call, max_attempts=5, retry_on=TimeoutError)("only for timeouts"),
        options(http_call, max_attempts=1)("once"),
    ]


async def main() -> None:
    async with Engine("payment.db") as engine:
        run = await engine.start(payment_workflow("order-123"), id="order-123")
        print(await run.result())
        policies = await engine.start(three_policies(), id="policies")
        print(await policies.result())


if __name__ == "__main__":
    asyncio.run(main())

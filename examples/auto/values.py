"""Every value is kept: assignments, conditions, chance, fallbacks. A restart sees the same ones and goes on.

Run it: `python examples/auto/values.py`.
"""

import random
import time
from dataclasses import dataclass

import perdure
from perdure import sleep, workflow


@dataclass
class Config:
    url: str


class ExpectedException(Exception):
    pass


def load_config() -> Config:
    print("loading the configuration", flush=True)
    return Config("https://example.org")


def http_get(url: str) -> str:
    print("GET", url, flush=True)
    return f"page of {url}"


def process(resp: str) -> int:
    print("processing", flush=True)
    return len(resp)


@workflow(auto=True)
async def pipeline(pause: str = "1 hour") -> int:
    config = load_config()
    resp = http_get(config.url)
    await sleep(pause)
    result = process(resp)
    return result


# -- a plain function is enough, and `time.sleep` lasts over restarts --------------------------------------------


def step1() -> int:
    print("step 1", flush=True)
    return 1


def step2(a: int) -> int:
    print("step 2", flush=True)
    return a + 1


@workflow(auto=True)
def two_steps(pause: float = 86400) -> int:
    a = step1()
    time.sleep(pause)
    b = step2(a)
    return b


# -- which way it went is recorded ---------------------------------------------------------------------------------


def check_something() -> bool:
    print("checking", flush=True)
    return True


def compute(name: str) -> str:
    print("computing", name, flush=True)
    return name


@workflow(auto=True)
def branch() -> str:
    cond = check_something()
    if cond:
        a = compute("one")
        return a
    else:
        b = compute("two")  # never reached
        return b


def next_boolean() -> bool:
    print("tossing a coin", flush=True)
    return random.random() < 0.5


@workflow(auto=True)
def coin() -> str:
    if next_boolean():  # recorded: the same way on every replay
        return compute("heads")
    if random.random() < 0.5:  # so is this
        return compute("tails")
    return compute("the edge")


# -- success or fallback is what replays ---------------------------------------------------------------------------


def risky_operation() -> str:
    print("trying", flush=True)
    raise ExpectedException("as expected")


def fallback() -> str:
    print("falling back", flush=True)
    return "fallback"


def dangerous_operation() -> None:
    print("passing the danger", flush=True)


@workflow(auto=True, max_attempts=1)
def careful() -> str:
    try:
        result = risky_operation()
    except ExpectedException:
        result = fallback()
    dangerous_operation()  # if it fails, so does the run; `perdure resume` goes on here, with the same result
    return result


# -- values with types, and a computation that is only described until it is awaited -------------------------------


@workflow(auto=True)
def typed() -> list[object]:
    a: int = step1()
    b: str = compute("text")
    c: Config = load_config()  # `d: Connection = connect()` would be refused at import
    return [a, b, c.url]


@workflow(auto=True)
async def nested() -> int:
    inner = two_steps(0.01)  # describes a child; nothing runs yet
    result = await inner
    return result


# -- a list made by calls is one record; what is awaited, and what is made of it, are others -----------------------


def list_urls() -> list[str]:
    print("listing", flush=True)
    return ["one", "two"]


@workflow(auto=True)
async def mixed(pause: float = 86400) -> int:
    a = list_urls()
    b = [http_get(x) for x in a]
    c = await two_steps(pause)
    d = process(" ".join(b)) + c
    return d


# -- recorded by execution order, with waits between ---------------------------------------------------------------


@workflow(auto=True)
async def several(pause: str = "1 hour") -> list[str]:
    a = compute("a")
    b = compute("b")
    await sleep(pause)
    c = compute(f"c after {a}")
    d = compute(f"d after {b}")
    await sleep(pause)
    return [c, d]


if __name__ == "__main__":
    print(perdure.run(pipeline("10 ms"), store="values.db", id="pipeline"))
    print(perdure.run(careful(), store="values.db", id="careful"))
    print(perdure.run(coin(), store="values.db", id="coin"))

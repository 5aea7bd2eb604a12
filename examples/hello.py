"""The smallest durable program: a step, a sleep, a result. Run it: `python examples/hello.py`."""

import perdure


@perdure.step
def greet(name: str) -> str:
    return f"Hello, {name}!"


@perdure.workflow
async def hello(name: str) -> str:
    await perdure.sleep("0.1 seconds")
    return await greet(name)


if __name__ == "__main__":
    print(perdure.run(hello("world")))

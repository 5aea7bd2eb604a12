"""What asyncio offers and workflow code may not have: I/O, threads, signals.

Each raises `Forbidden` and names the way out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NoReturn

from perdure.errors import Forbidden

_REFUSED: Final = (
    "add_reader", "add_signal_handler", "add_writer", "call_soon_threadsafe", "close", "connect_accepted_socket",
    "connect_read_pipe", "connect_write_pipe", "create_connection", "create_datagram_endpoint", "create_server",
    "create_unix_connection", "create_unix_server", "getaddrinfo", "getnameinfo", "remove_reader",
    "remove_signal_handler", "remove_writer", "run_forever", "run_in_executor", "run_until_complete", "sendfile",
    "set_default_executor", "set_exception_handler", "set_task_factory", "shutdown_default_executor", "sock_accept",
    "sock_connect", "sock_recv", "sock_recv_into", "sock_recvfrom", "sock_recvfrom_into", "sock_sendall",
    "sock_sendfile", "sock_sendto", "start_tls", "stop", "subprocess_exec", "subprocess_shell",
)  # fmt: skip


def refuse_io(loop_class: type[Any]) -> None:
    """Give a class of loops a method for everything that it refuses."""
    for name in _REFUSED:
        setattr(loop_class, name, _refusal(name))


def _refusal(name: str) -> Callable[..., NoReturn]:
    def refuse(self: Any, *args: Any, **kwargs: Any) -> NoReturn:
        raise Forbidden(
            f"workflow code called loop.{name}(), which does I/O or uses threads. "
            "Move it into a function decorated with @step and await that."
        )

    refuse.__name__ = name
    return refuse

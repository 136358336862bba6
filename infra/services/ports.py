"""On which port an own server listens."""

import os
from typing import Literal

from infra.process import port_is_free, wait_until
from infra.services.errors import PortTakenError, ServiceError

Server = Literal["prefect", "mlflow"]

_USUAL: dict[Server, int] = {"prefect": 4200, "mlflow": 5000}
_TRIED = 100
"""Ports from the usual one on that are tried."""
_RELEASE_S = 3
"""How long the port of a server that was just killed may stay taken."""


def named_port(server: Server, option: int | None) -> int | None:
    """The port that the option names, else the environment; ServiceError when it is none."""
    variable = f"OVERNIGHT_{server.upper()}_PORT"
    text = os.environ.get(variable) if option is None else str(option)
    if not text:
        return None
    if not text.isdecimal() or not 1 <= int(text) <= 65535:
        source = variable if option is None else f"--{server}-port"
        raise ServiceError(f"{source} is {text!r}: set it to a port number, 1 to 65535")
    return int(text)


def check_runs_there(server: Server, option: int | None, url: str) -> None:
    """ServiceError when a port is named and the server, which runs at `url`, has another one."""
    port = named_port(server, option)
    if port is not None and url.rpartition(":")[2] != str(port):
        raise ServiceError(
            f"{server} runs at {url}, not on port {port}: stop it with `overnight down`, or name no port"
        )


def free_port(server: Server, option: int | None, last_url: str | None) -> int:
    """The named port; else the one that it had last, the usual one or the next that is free.

    PortTakenError when a port is named and taken.
    """
    port = named_port(server, option)
    if port is not None:
        if not _becomes_free(port):
            raise PortTakenError(
                f"port {port} is taken by another program: set OVERNIGHT_{server.upper()}_PORT "
                f"(or --{server}-port) to a free one, or to none"
            )
        return port
    if last_url and _becomes_free(last := int(last_url.rpartition(":")[2])):
        return last
    usual = _USUAL[server]
    for port in range(usual, usual + _TRIED):
        if port_is_free(port):
            return port
    raise PortTakenError(
        f"ports {usual} to {usual + _TRIED - 1} are taken: set OVERNIGHT_{server.upper()}_PORT to a free one"
    )


def _becomes_free(port: int) -> bool:
    try:
        wait_until(lambda: port_is_free(port), _RELEASE_S, "the port")
    except TimeoutError:
        return False
    return True

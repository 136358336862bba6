"""`python -m infra.engines.embedded`: serve a checkpoint folder until terminated."""

import argparse
import os
import socket
import sys
from pathlib import Path

from infra.process import LOOPBACK


def main() -> None:
    """Take the port, load the model, serve."""
    options = _parse()
    listener = _take_port(options.host, options.port)
    import torch  # after the port: a taken one is told at once
    import uvicorn

    from configs.errors import OvernightError
    from infra.engines.embedded.app import create_app
    from infra.engines.embedded.engine import Engine
    from infra.engines.embedded.model import ServedModel

    torch.set_num_threads(options.threads)
    try:
        model = ServedModel(
            options.model_path,
            getattr(torch, options.dtype),
            torch.device(options.device),
            options.context_length,
        )
    except (OvernightError, ValueError) as error:
        sys.exit(f"cannot serve {options.model_path}: {error}")
    app = create_app(Engine(model, options.batch_size))
    config = uvicorn.Config(
        app,
        loop="asyncio",  # takes large bodies twice as fast as uvloop
        access_log=False,
        timeout_keep_alive=120,
        timeout_graceful_shutdown=1,
    )
    uvicorn.Server(config).run(sockets=[listener])
    os._exit(0)  # a thread stuck in a collective must not hold the exit up


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m infra.engines.embedded", description=main.__doc__)
    parser.add_argument("--model-path", type=Path, required=True, help="checkpoint folder")
    parser.add_argument("--host", default=LOOPBACK)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--threads", type=int, default=1, help="CPU threads")
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32")
    parser.add_argument("--context-length", type=int, default=192, help="longest prompt plus output, tokens")
    parser.add_argument("--batch-size", type=int, default=128, help="most samples decoded together")
    parser.add_argument("--device", default="cpu", help="torch device")
    return parser.parse_args()


def _take_port(host: str, port: int) -> socket.socket:
    listener = socket.socket(proto=socket.IPPROTO_TCP)  # said, or asyncio leaves Nagle on: 40 ms an answer
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        sys.exit(f"cannot listen on {host}:{port}: {error.strerror}")
    return listener


if __name__ == "__main__":
    main()

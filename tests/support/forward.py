"""A forwarded port, as of `ssh -L`."""

import contextlib
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from infra.process import LOOPBACK


@contextmanager
def forwarded(port: int) -> Iterator[int]:
    """Another port of this machine whose connections go to `port`."""
    with socket.create_server((LOOPBACK, 0)) as listener:
        threading.Thread(target=_accept, args=(listener, port), daemon=True).start()
        yield listener.getsockname()[1]


def _accept(listener: socket.socket, port: int) -> None:
    with contextlib.suppress(OSError):  # closed
        while True:
            near, _ = listener.accept()
            far = socket.create_connection((LOOPBACK, port))
            for source, sink in ((near, far), (far, near)):
                threading.Thread(target=_copy, args=(source, sink), daemon=True).start()


def _copy(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)

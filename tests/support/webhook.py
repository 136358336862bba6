"""A server that keeps what notification blocks send to it."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from prefect.blocks.notifications import CustomWebhookNotificationBlock

from infra.process import LOOPBACK


@dataclass
class Webhook:
    """Where it is, and the messages it got, oldest first."""

    url: str = ""
    messages: list[dict[str, str]] = field(default_factory=list)

    def about(self, text: str) -> list[dict[str, str]]:
        """The messages that have the text in subject or body."""
        return [message for message in self.messages if text in str(message)]


@contextmanager
def webhook(block: str) -> Iterator[Webhook]:
    """A running server, and on the Prefect server that this process uses a block of that name for it."""
    hook = Webhook()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            hook.messages.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer((LOOPBACK, 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        hook.url = f"http://{LOOPBACK}:{server.server_port}"
        CustomWebhookNotificationBlock(
            name=block, url=hook.url, json_data={"subject": "{{subject}}", "body": "{{body}}"}
        ).save(block, overwrite=True)
        yield hook
        server.shutdown()

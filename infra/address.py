"""Where servers of a machine listen, and what others call the machine."""

from dataclasses import dataclass

from infra.process import free_port


@dataclass(frozen=True)
class Address:
    """A machine's address, in two views that differ behind a translation or on all interfaces."""

    bind: str
    """What servers listen on, such as 0.0.0.0."""
    advertised: str
    """What the run's other machines connect to."""

    def url(self, port: int) -> str:
        """Of a server that listens on a port."""
        return f"http://{self.advertised}:{port}"

    def free_port(self) -> int:
        """A port on which a server could listen now."""
        return free_port(self.bind)

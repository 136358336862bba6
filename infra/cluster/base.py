"""What a run asks of whatever provides its machines."""

from typing import Protocol

from infra.address import Address


class Cluster(Protocol):
    """Machines with Ray on them, for one process at a time; made of its settings and the state folder.

    It travels to the machines' actors, which ask for their address there.
    """

    def start(self) -> None:
        """Have the cluster up and this process connected to it; fine when it is."""

    def stop(self) -> None:
        """Give back what `start` took; fine when nothing is up."""

    def kill(self) -> None:
        """Take away at once what `start` took, whatever it is doing: this process is about to end."""

    def address(self) -> Address:
        """Of the machine that this is called on."""

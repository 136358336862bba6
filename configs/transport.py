"""Ways in which weight versions travel to the engines."""

from typing import Any, Literal

from configs.base import Kind, LocalPath, one_of


class TransportConfig(Kind):
    """How tensors travel; built as a Transport of `tasks/publishing/transports`."""


class DiskTransport(TransportConfig):
    """Engines load the exported folder."""

    kind: Literal["disk"] = "disk"
    owner = "tasks.publishing.transports.disk:Disk"


class DeltaTransport(TransportConfig):
    """Engines load a copy of their machine's own, made from that of the version before and what changed."""

    kind: Literal["delta"] = "delta"
    owner = "tasks.publishing.transports.delta:Delta"
    mirror: LocalPath | None = None
    """Folder on each engine's machine for its copies; `mirror` under the state folder when absent."""


class TensorTransport(TransportConfig):
    """Engines are sent what is in the exported folder."""

    kind: Literal["tensor"] = "tensor"
    owner = "tasks.publishing.transports.tensor:Tensor"


class ProcessGroupTransport(TransportConfig):
    """The trainer broadcasts the tensors."""

    kind: Literal["process_group"] = "process_group"
    owner = "tasks.publishing.transports.process_group:ProcessGroup"


Transport = one_of(TransportConfig, DiskTransport, DeltaTransport, TensorTransport, ProcessGroupTransport)


def whole_form(publish: dict[str, Any]) -> dict[str, Any]:
    """A publish section with its transport as a section, where it is given by its kind alone.

    Runs of release 0.1 have the folder of copies beside it, whatever the transport.
    """
    transport = publish.get("transport")
    whole = {"kind": transport} if isinstance(transport, str) else transport
    rest = {name: value for name, value in publish.items() if name not in ("transport", "mirror")}
    if isinstance(whole, dict) and whole.get("kind") == "delta" and "mirror" in publish:
        whole = {"mirror": publish["mirror"], **whole}
    return {**rest, "transport": whole} if "transport" in publish else rest

"""A transport is given by its kind alone or as a section, and runs of release 0.1 keep theirs."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from configs.transport import DeltaTransport, DiskTransport, ProcessGroupTransport, TensorTransport
from configs.weights import PublishConfig

KINDS = {
    "disk": DiskTransport(),
    "delta": DeltaTransport(),
    "tensor": TensorTransport(),
    "process_group": ProcessGroupTransport(),
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_name_of_a_kind_stands_for_it_and_is_what_its_owner_calls_itself(kind: str) -> None:
    publish = PublishConfig.model_validate({"transport": kind})
    assert publish.transport == KINDS[kind]
    assert PublishConfig.model_validate_json(publish.model_dump_json()) == publish
    owner = publish.transport.build()
    assert type(owner).__name__.lower() == kind.replace("_", "")


def test_the_folder_of_copies_is_read_where_release_0_1_wrote_it() -> None:
    old = {"transport": "delta", "mirror": "/fast", "bucket_mb": 64.0}
    publish = PublishConfig.model_validate(old)
    assert publish.transport == DeltaTransport(mirror=Path("/fast")) and publish.bucket_mb == 64
    assert PublishConfig.model_validate({"transport": "disk", "mirror": None}).transport == DiskTransport()
    assert PublishConfig.model_validate({"mirror": "/fast"}) == PublishConfig()


@pytest.mark.parametrize("transport", ["carrier pigeon", {"kind": "disk", "mirror": "/fast"}])
def test_what_is_no_transport_is_refused(transport: object) -> None:
    with pytest.raises(ValidationError, match=r"kind must be one of|Extra inputs"):
        PublishConfig.model_validate({"transport": transport})

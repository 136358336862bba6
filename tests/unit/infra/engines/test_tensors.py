"""Tensors in the body of a request."""

import base64
import os
import pickle

import pytest
import torch

from infra.engines.tensors import buckets, pack, unpack


def test_tensors_of_all_dtypes_arrive_as_they_are() -> None:
    numbers = torch.arange(15).view(3, 5)
    dtypes = [
        torch.float8_e4m3fn,
        torch.float32,
        torch.int8,
        torch.bfloat16,
        torch.float8_e8m0fnu,
        torch.int64,
    ]
    tensors = {str(dtype): numbers.to(dtype) for dtype in dtypes}
    tensors |= {"parameter": torch.nn.Parameter(torch.ones(2)), "scalar": torch.tensor(3.0)}
    received = unpack(pack(list(tensors.items())).content)
    assert list(received) == list(tensors)
    for name, tensor in tensors.items():
        assert (received[name].dtype, received[name].shape) == (tensor.dtype, tensor.shape)
        assert torch.equal(received[name].float(), tensor.float())


def test_a_view_travels_without_its_storage() -> None:
    whole = torch.arange(1_000_000.0)
    for view in (whole[10:20], whole.view(1000, 1000)[:, 3]):
        bucket = pack([("a", view)])
        assert bucket.shapes == {"a": tuple(view.shape)}
        assert len(bucket.content) < 10_000
        assert torch.equal(unpack(bucket.content)["a"], view)


def test_buckets_keep_the_order_within_their_size() -> None:
    tensors = [(str(number), torch.zeros(size)) for number, size in enumerate([1, 2, 1, 9, 1, 3])]
    cut = [[name for name, _ in bucket] for bucket in buckets(tensors, most_bytes=16)]
    assert cut == [["0", "1", "2"], ["3"], ["4", "5"]]
    assert list(buckets([], 16)) == []


class Harm:
    """Its unpickling would run a command."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, ("true",)


@pytest.mark.parametrize(
    "value",
    [Harm(), {"flattened_tensor": Harm(), "metadata": []}, [1], print],
    ids=["harm", "harm-inside", "list", "function"],
)
def test_what_is_no_bucket_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match="not a flattened bucket"):
        unpack(base64.b64encode(pickle.dumps(value)).decode())

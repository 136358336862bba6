"""Answers in SGLang's shapes."""

import asyncio
from concurrent.futures import Future
from typing import TypeVar

from fastapi.responses import Response

from infra.engines import protocol

T = TypeVar("T")


async def result(future: "Future[T]") -> T:
    """Wait for what the worker does."""
    return await asyncio.wrap_future(future)


def updated(success: bool, message: str = "Success.") -> Response:
    """The answer to a weight call."""
    return as_json(protocol.UpdateResponse(success=success, message=message), 200 if success else 400)


def refusal(message: str, status: int) -> Response:
    """The answer to a request that is not served."""
    return as_json(protocol.ErrorResponse(error=protocol.ErrorDetail(message=message)), status)


def as_json(body: protocol.Response, status: int = 200) -> Response:
    """A body without what is not set."""
    return Response(body.model_dump_json(exclude_none=True), status, media_type="application/json")

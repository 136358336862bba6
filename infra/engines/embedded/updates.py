"""The endpoints that change weights: from disk, from tensors, from a process group."""

from collections.abc import Awaitable, Callable
from pathlib import Path

import torch
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from pydantic import ValidationError

from configs.errors import RunFailure
from infra.engines import protocol
from infra.engines.checkpoint import WeightsMismatch
from infra.engines.embedded.answers import result, updated
from infra.engines.embedded.engine import Engine
from infra.engines.embedded.groups import GroupError
from infra.engines.tensors import unpack

_NO_SESSION = "must run between begin_weight_update() and end_weight_update()"
_NOT_FLUSHED = (
    "Weights were updated, but the cache was not flushed because requests are still running or queued. "
    "Retract or finish them, then call /flush_cache."
)
Update = protocol.UpdateFromDiskRequest | protocol.UpdateFromTensorsRequest | protocol.UpdateFromGroupRequest


class Refused(RunFailure):
    """A weight call was not done as asked."""


def add_weight_updates(app: FastAPI, engine: Engine) -> None:
    """Add the endpoints."""
    _add_transports(app, engine)
    _add_sessions(app, engine)
    _add_groups(app, engine)
    model, worker = engine.model, engine.worker

    @app.post("/update_weight_version")
    async def update_weight_version(body: protocol.UpdateVersionRequest) -> Response:
        def stamp() -> None:
            model.version = body.new_version

        if body.abort_all_requests:
            worker.abort(lambda sequence: True)
        return await _answer(result(worker.command(stamp)))


def _add_transports(app: FastAPI, engine: Engine) -> None:
    model = engine.model

    @app.post("/update_weights_from_disk")
    async def update_weights_from_disk(body: protocol.UpdateFromDiskRequest) -> Response:
        return await _change(engine, body, lambda: model.load_folder(Path(body.model_path)))

    @app.post("/update_weights_from_tensor")
    async def update_weights_from_tensor(request: Request) -> Response:
        if not engine.updating:
            return updated(False, f"update_weights_from_tensor {_NO_SESSION}")
        body = _read_large(await request.body())
        return await _change(engine, body, lambda: model.weights.load(_tensors(body)))

    @app.post("/update_weights_from_distributed")
    async def update_weights_from_distributed(body: protocol.UpdateFromGroupRequest) -> Response:
        if not engine.updating:
            return updated(False, f"update_weights_from_distributed {_NO_SESSION}")
        weights = model.weights
        return await _change(engine, body, lambda: weights.load(engine.groups.receive(body, weights.place)))


def _add_sessions(app: FastAPI, engine: Engine) -> None:
    @app.post("/begin_weight_update")
    async def begin_weight_update() -> Response:
        if engine.updating:
            return updated(False, "a weight-update session is already open; call end_weight_update() first")
        engine.updating = True
        return updated(True)

    @app.post("/end_weight_update")
    async def end_weight_update() -> Response:
        if not engine.updating:
            return updated(False, "no weight-update session is open; call begin_weight_update() first")
        engine.updating = False
        return await _answer(result(engine.worker.command(engine.model.weights.finish)))


def _add_groups(app: FastAPI, engine: Engine) -> None:
    @app.post("/init_weights_update_group")
    async def init_weights_update_group(body: protocol.InitUpdateGroupRequest) -> Response:
        return await _answer(result(engine.groups.join(body)))

    @app.post("/destroy_weights_update_group")
    async def destroy_weights_update_group(body: protocol.DestroyUpdateGroupRequest) -> Response:
        return await _answer(result(engine.worker.command(lambda: engine.groups.leave(body.group_name))))


async def _change(engine: Engine, body: Update, load: Callable[[], None]) -> Response:
    """Change the weights once no request runs, or at once in a pause."""

    def action() -> None:
        load()
        if body.weight_version is not None:
            engine.model.version = body.weight_version
        if body.flush_cache and engine.worker.holds_old_keys:
            raise Refused(_NOT_FLUSHED)

    if body.abort_all_requests:
        engine.worker.abort(lambda sequence: True)
    return await _answer(result(engine.worker.command(action, when_quiet=True)))


def _tensors(body: protocol.UpdateFromTensorsRequest) -> dict[str, torch.Tensor]:
    if len(body.serialized_named_tensors) != 1:
        raise Refused(f"serialized_named_tensors has {len(body.serialized_named_tensors)} entries for 1 rank")
    try:
        return unpack(body.serialized_named_tensors[0])
    except ValueError as error:
        raise Refused(f"serialized_named_tensors[0]: {error}") from error


def _read_large(body: bytes) -> protocol.UpdateFromTensorsRequest:
    """As FastAPI reads bodies, but in one go: it would make Python objects of the JSON first."""
    try:
        return protocol.UpdateFromTensorsRequest.model_validate_json(body)
    except ValidationError as error:
        problems = error.errors(include_url=False, include_input=False)
        raise RequestValidationError([{**each, "loc": ("body", *each["loc"])} for each in problems]) from None


async def _answer(change: Awaitable[None]) -> Response:
    """Do it; a change that does not fit is refused, and says so."""
    try:
        await change
    except (WeightsMismatch, GroupError, Refused) as error:
        return updated(False, str(error))
    return updated(True)

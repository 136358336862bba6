"""The HTTP front: SGLang's endpoints on the worker, its groups and the model."""

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from pathlib import Path
from typing import TypeVar

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from pydantic import TypeAdapter

from infra.engines import protocol
from infra.engines.checksum import overall_hash
from infra.engines.embedded.admission import BadRequest, admit, is_batch, results
from infra.engines.embedded.groups import GroupError, UpdateGroups
from infra.engines.embedded.model import ServedModel
from infra.engines.embedded.sampling import NonFiniteLogits
from infra.engines.embedded.sequence import Sequence
from infra.engines.embedded.weights import WeightsMismatch
from infra.engines.embedded.worker import Worker

T = TypeVar("T")
_RESULTS = TypeAdapter(list[protocol.GenerateResult])
_HEALTH_TIMEOUT_S = 20.0
_DISCONNECT_CHECK_S = 0.5


class Engine:
    """What the endpoints act on."""

    def __init__(self, model: ServedModel, batch_size: int) -> None:
        self.model = model
        self.batch_size = batch_size
        self.worker = Worker(model, batch_size)
        self.groups = UpdateGroups(model.device)
        self.updating = False
        """Whether a weight-update session is open."""


def create_app(engine: Engine) -> FastAPI:
    """The application that serves an engine."""
    app = FastAPI(title="Overnight embedded engine")
    _add_error_handlers(app)
    _add_generation(app, engine)
    _add_information(app, engine)
    _add_flow_control(app, engine)
    _add_weight_updates(app, engine)
    _add_update_groups(app, engine)
    return app


def _add_error_handlers(app: FastAPI) -> None:
    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        problems = (f"{'.'.join(str(part) for part in e['loc'][1:])}: {e['msg']}" for e in error.errors())
        return _error("; ".join(problems), 400)

    @app.exception_handler(BadRequest)
    async def bad(request: Request, error: BadRequest) -> Response:
        return _error(str(error), 400)

    @app.exception_handler(NonFiniteLogits)
    async def broken(request: Request, error: NonFiniteLogits) -> Response:
        return _error(str(error), 500)

    @app.exception_handler(Exception)
    async def unexpected(request: Request, error: Exception) -> Response:
        return _error(f"{type(error).__name__}: {error}", 500)


def _add_generation(app: FastAPI, engine: Engine) -> None:
    @app.post("/generate")
    async def generate(body: protocol.GenerateRequest, request: Request) -> Response:
        sequences = admit(body, engine.model)
        await _until_done_or_gone(engine.worker, sequences, request)
        answer = results(sequences, body, engine.model)
        if is_batch(body):
            return Response(_RESULTS.dump_json(answer, exclude_none=True), media_type="application/json")
        return _json(answer[0])

    @app.get("/health")
    async def health() -> Response:
        return Response()

    @app.get("/ready")
    async def ready() -> Response:
        return Response(status_code=503 if engine.worker.paused else 200)

    @app.get("/health_generate")
    async def health_generate() -> Response:
        if engine.worker.paused:
            return _error("generation is paused", 503)
        try:
            async with asyncio.timeout(_HEALTH_TIMEOUT_S):
                await _step(engine.worker)
        except TimeoutError:
            return _error(f"no step within {_HEALTH_TIMEOUT_S:.0f} s", 503)
        return Response()


def _add_information(app: FastAPI, engine: Engine) -> None:
    model = engine.model

    @app.get("/model_info")
    async def model_info() -> protocol.ModelInfo:
        return protocol.ModelInfo(
            model_path=str(model.folder),
            weight_version=model.version,
            model_type=model.config.model_type,
            architectures=tuple(model.config.architectures or ()),
        )

    @app.get("/server_info")
    async def server_info() -> protocol.ServerInfo:
        return protocol.ServerInfo(
            model_path=str(model.folder),
            device=str(model.device),
            dtype=str(model.dtype).removeprefix("torch."),
            context_length=model.context_length,
            max_running_requests=engine.batch_size,
        )

    @app.post("/get_weights_by_name")
    async def get_weights_by_name(body: protocol.GetWeightsRequest) -> Response:
        def read() -> list[object]:
            return model.weights.get(body.name)[: body.truncate_size].float().tolist()

        try:
            values = await _result(engine.worker.command(read))
        except WeightsMismatch as error:
            return _error(str(error), 400)
        return Response(TypeAdapter(list[object]).dump_json(values), media_type="application/json")

    @app.post("/weights_checker")
    async def weights_checker(body: protocol.CheckWeightsRequest) -> protocol.CheckWeightsResponse:
        checksums = await _result(engine.worker.command(model.weights.checksums))
        rank = protocol.RankChecksums(checksums=checksums, per_gpu_checksum=overall_hash(checksums))
        return protocol.CheckWeightsResponse(success=True, message="Success.", ranks=(rank,))


def _add_flow_control(app: FastAPI, engine: Engine) -> None:
    worker = engine.worker

    @app.post("/pause_generation")
    async def pause_generation(body: protocol.PauseRequest) -> Response:
        worker.pause(body.mode)
        return Response()

    @app.post("/continue_generation")
    async def continue_generation(body: protocol.ContinueRequest) -> Response:
        worker.resume()
        return Response()

    @app.post("/abort_request")
    async def abort_request(body: protocol.AbortRequest) -> Response:
        if not body.abort_all and not body.rid:
            return _error("give rid, or set abort_all", 400)
        worker.abort(lambda sequence: body.abort_all or sequence.id.startswith(body.rid))
        return Response()

    @app.api_route("/flush_cache", methods=["GET", "POST"])
    async def flush_cache() -> Response:
        """No prefix is kept between requests, so there is nothing to drop."""
        if worker.busy:
            return _error("Flush cache failed: requests are running or waiting", 400)
        return Response()


def _add_weight_updates(app: FastAPI, engine: Engine) -> None:
    model, worker = engine.model, engine.worker

    async def change(
        body: protocol.UpdateFromDiskRequest | protocol.UpdateFromGroupRequest, load: Callable[[], None]
    ) -> Response:
        def action() -> None:
            load()
            if body.weight_version is not None:
                model.version = body.weight_version

        if body.abort_all_requests:
            worker.abort(lambda sequence: True)
        return await _update(_result(worker.command(action, when_quiet=True)))

    @app.post("/update_weights_from_disk")
    async def update_weights_from_disk(body: protocol.UpdateFromDiskRequest) -> Response:
        return await change(body, lambda: model.load_folder(Path(body.model_path)))

    @app.post("/update_weights_from_distributed")
    async def update_weights_from_distributed(body: protocol.UpdateFromGroupRequest) -> Response:
        return await change(body, lambda: model.weights.load(engine.groups.receive(body)))

    @app.post("/update_weight_version")
    async def update_weight_version(body: protocol.UpdateVersionRequest) -> Response:
        def stamp() -> None:
            model.version = body.new_version

        if body.abort_all_requests:
            worker.abort(lambda sequence: True)
        return await _update(_result(worker.command(stamp)))

    @app.post("/begin_weight_update")
    async def begin_weight_update() -> Response:
        if engine.updating:
            return _updated(False, "a weight-update session is already open; call end_weight_update first")
        engine.updating = True
        return _updated(True)

    @app.post("/end_weight_update")
    async def end_weight_update() -> Response:
        if not engine.updating:
            return _updated(False, "no weight-update session is open; call begin_weight_update first")
        engine.updating = False
        return _updated(True)


def _add_update_groups(app: FastAPI, engine: Engine) -> None:
    @app.post("/init_weights_update_group")
    async def init_weights_update_group(body: protocol.InitUpdateGroupRequest) -> Response:
        return await _update(_result(engine.groups.join(body)))

    @app.post("/destroy_weights_update_group")
    async def destroy_weights_update_group(body: protocol.DestroyUpdateGroupRequest) -> Response:
        return await _update(_result(engine.worker.command(lambda: engine.groups.leave(body.group_name))))


async def _until_done_or_gone(worker: Worker, sequences: list[Sequence], request: Request) -> None:
    """Wait for the sequences; abort them when the client hangs up."""
    done = asyncio.wrap_future(worker.generate(sequences))
    mine = {id(sequence) for sequence in sequences}
    while not (await asyncio.wait({done}, timeout=_DISCONNECT_CHECK_S))[0]:
        if await request.is_disconnected():
            worker.abort(lambda sequence: id(sequence) in mine)
            break
    await done


async def _step(worker: Worker) -> None:
    """Wait until a step is made; an idle engine is given one to make."""
    if not worker.busy:
        params = protocol.SamplingParams(max_new_tokens=1, temperature=0)
        return await _result(worker.generate([Sequence("health", (0,), params, seed=0)]))
    before = worker.steps
    while worker.steps == before:
        await asyncio.sleep(0.01)


async def _result(future: "Future[T]") -> T:
    return await asyncio.wrap_future(future)


async def _update(change: Awaitable[None]) -> Response:
    """Answer a weight call: a change that does not fit is refused, and says so."""
    try:
        await change
    except (WeightsMismatch, GroupError) as error:
        return _updated(False, str(error))
    return _updated(True)


def _updated(success: bool, message: str = "Success.") -> Response:
    return _json(protocol.UpdateResponse(success=success, message=message), 200 if success else 400)


def _error(message: str, status: int) -> Response:
    return _json(protocol.ErrorResponse(error=protocol.ErrorDetail(message=message)), status)


def _json(body: protocol.Response, status: int = 200) -> Response:
    return Response(body.model_dump_json(exclude_none=True), status, media_type="application/json")

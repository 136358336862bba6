"""The HTTP front: SGLang's endpoints on the worker, its groups and the model."""

import asyncio

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from pydantic import TypeAdapter

from infra.engines import protocol
from infra.engines.checksum import overall_hash
from infra.engines.embedded.admission import BadRequest, admit, is_batch, results
from infra.engines.embedded.answers import as_json, refusal, result
from infra.engines.embedded.engine import Engine
from infra.engines.embedded.sampling import NonFiniteLogits
from infra.engines.embedded.sequence import Sequence
from infra.engines.embedded.updates import add_weight_updates
from infra.engines.embedded.worker import Worker
from infra.weights_folder import WeightsMismatch

_RESULTS = TypeAdapter(list[protocol.GenerateResult])
_HEALTH_TIMEOUT_S = 20.0
_DISCONNECT_CHECK_S = 0.5


def create_app(engine: Engine) -> FastAPI:
    """The application that serves an engine."""
    app = FastAPI(title="Overnight embedded engine")
    _add_error_handlers(app)
    _add_generation(app, engine)
    _add_information(app, engine)
    _add_flow_control(app, engine)
    add_weight_updates(app, engine)
    return app


def _add_error_handlers(app: FastAPI) -> None:
    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        problems = (f"{'.'.join(str(part) for part in e['loc'][1:])}: {e['msg']}" for e in error.errors())
        return refusal("; ".join(problems), 400)

    @app.exception_handler(BadRequest)
    async def bad(request: Request, error: BadRequest) -> Response:
        return refusal(str(error), 400)

    @app.exception_handler(NonFiniteLogits)
    async def broken(request: Request, error: NonFiniteLogits) -> Response:
        return refusal(str(error), 500)

    @app.exception_handler(Exception)
    async def unexpected(request: Request, error: Exception) -> Response:
        return refusal(f"{type(error).__name__}: {error}", 500)


def _add_generation(app: FastAPI, engine: Engine) -> None:
    @app.post("/generate")
    async def generate(body: protocol.RoutedGenerateRequest, request: Request) -> Response:
        sequences = admit(body, engine.model)
        await _until_done_or_gone(engine.worker, sequences, request)
        answer = results(sequences, body, engine.model)
        if is_batch(body):
            return Response(_RESULTS.dump_json(answer, exclude_none=True), media_type="application/json")
        return as_json(answer[0])

    @app.get("/health")
    async def health() -> Response:
        return Response()

    @app.get("/ready")
    async def ready() -> Response:
        return Response(status_code=503 if engine.worker.paused else 200)

    @app.get("/health_generate")
    async def health_generate() -> Response:
        if engine.worker.paused:
            return refusal("generation is paused", 503)
        try:
            async with asyncio.timeout(_HEALTH_TIMEOUT_S):
                await _step(engine.worker)
        except TimeoutError:
            return refusal(f"no step within {_HEALTH_TIMEOUT_S:.0f} s", 503)
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
            values = await result(engine.worker.command(read))
        except WeightsMismatch as error:
            return refusal(str(error), 400)
        return Response(TypeAdapter(list[object]).dump_json(values), media_type="application/json")

    @app.post("/weights_checker")
    async def weights_checker(body: protocol.CheckWeightsRequest) -> protocol.CheckWeightsResponse:
        checksums = await result(engine.worker.command(model.weights.checksums))
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
            return refusal("give rid, or set abort_all", 400)
        worker.abort(lambda sequence: body.abort_all or sequence.id == body.rid)
        return Response()

    @app.api_route("/flush_cache", methods=["GET", "POST"])
    async def flush_cache() -> Response:
        """No prefix is kept between requests: all that could stay are the keys of what runs."""
        if worker.holds_old_keys or (worker.busy and not worker.paused):
            return refusal("Flush cache failed: requests are running or waiting", 400)
        return Response()


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
        return await result(worker.generate([Sequence("health", (0,), params, seed=0)]))
    before = worker.steps
    while worker.steps == before:
        await asyncio.sleep(0.01)

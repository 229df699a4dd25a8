"""The service over HTTP: its routes, and how HTTP requests become predictions."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any, Literal

from fastapi import FastAPI, HTTPException, Path, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from starlette.exceptions import HTTPException as StarletteHTTPException

from shortlist import __version__
from shortlist.errors import InputError
from shortlist.predict import RULES
from shortlist.serve.batching import QueueFullError, WorkerDiedError
from shortlist.serve.browse import find_rows, label_number, label_page, labels_page, place_of, rows_page
from shortlist.serve.curves import SLIDERS, describe_rule, figures
from shortlist.serve.http.guard import TooLongError, TooManyError, TooSlowError, refusal, too_much
from shortlist.serve.http.inputs import decode_base64, read_rows
from shortlist.serve.http.pages import add_pages
from shortlist.serve.http.schemas import (
    AuditRequest,
    AuditResponse,
    Error,
    Kind,
    PredictRequest,
    PredictResponse,
    SaveRequest,
    SaveResponse,
    Show,
    Sorted,
)
from shortlist.serve.saving import equivalents, save_fitted
from shortlist.serve.service import Service

Name = Annotated[str, Path(description="the name of a model", max_length=1000)]
Value = Annotated[float | None, Query(allow_inf_nan=False, description="of the option that the kind's slider moves")]
Offset = Annotated[int, Query(ge=0, lt=1 << 40)]
_REFUSALS: dict[int | str, dict[str, Any]] = {
    code: {"model": Error, "description": about}
    for code, about in {
        400: "a header that is not what it must be",
        401: "the service's token is missing",
        403: "a Host or Origin that may not use the service",
        404: "no such model or row",
        408: "the body came too slowly",
        413: "too many rows or bytes",
        422: "a request that is not as it must be",
        429: "too many requests wait",
        503: "the process that computed the answer died",
        504: "the answer took too long",
    }.items()
}
_SENTENCES = {
    "Not Found": "there is nothing at this address.",
    "Method Not Allowed": "this address does not take that method.",
}


def make_app(service: Service) -> FastAPI:
    """The application, which starts and stops the service with itself."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        service.start()
        yield
        await service.close()

    app = FastAPI(
        title="shortlist",
        version=__version__,
        description="Models that answer with sets of labels.",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        responses=_REFUSALS,
    )
    _add_errors(app)
    _add_service(app, service)
    _add_models(app, service)
    _add_predict(app, service)
    _add_decisions(app, service)
    add_pages(app)
    return app


def _add_errors(app: FastAPI) -> None:
    """Every error is one sentence."""

    async def invalid(_: Request, error: Any) -> Response:
        return refusal(422, _sentence(error.errors()))

    async def answer(_: Request, error: Any) -> Response:
        if isinstance(error, InputError):
            return refusal(422, str(error))
        if isinstance(error, QueueFullError):
            return refusal(429, str(error), {"Retry-After": str(error.retry_after)})
        if isinstance(error, WorkerDiedError):
            return refusal(503, str(error), {"Retry-After": "1"})
        if isinstance(error, StarletteHTTPException):
            sentence = _SENTENCES.get(str(error.detail), str(error.detail))
            return refusal(error.status_code, sentence, error.headers)
        return too_much(error) or refusal(504, "the answer took longer than the service waits.")

    async def failed(_: Request, error: Any) -> Response:
        return refusal(500, "the service failed; its log says where.")

    app.add_exception_handler(Exception, failed)
    for kind in (RequestValidationError, ValidationError):
        app.add_exception_handler(kind, invalid)
    bodies, late = (TooLongError, TooSlowError, TooManyError), (TimeoutError, asyncio.TimeoutError)
    for kind in (InputError, QueueFullError, WorkerDiedError, StarletteHTTPException, *bodies, *late):
        app.add_exception_handler(kind, answer)


def _sentence(errors: Any) -> str:
    first = errors[0]
    where = ".".join(str(part)[:100] for part in first["loc"] if part not in ("body", "query", "path"))
    rule = str(first["msg"]).removeprefix("Value error, ").rstrip(".")[:300]
    return f"`{where}`: {rule}." if where else f"{rule}."


def _add_service(app: FastAPI, service: Service) -> None:
    @app.get("/healthz", tags=["service"])
    async def health() -> dict[str, str]:
        """Say that the service answers."""
        return {"status": "ok"}

    @app.get("/metrics", tags=["service"], response_class=Response, responses={200: {"content": {"text/plain": {}}}})
    async def metrics() -> Response:
        """Counts and times for Prometheus."""
        return Response(service.metrics.text(), media_type="text/plain; version=0.0.4")

    @app.get("/models", tags=["models"])
    async def models() -> dict[str, Any]:
        """The loaded models."""
        return {"models": [service.describe(name) for name in service.models]}

    @app.get("/rules", tags=["rules"])
    async def rules() -> dict[str, Any]:
        """The kinds of rules, what they take and what they guarantee."""
        return {"rules": [{"kind": name, **kind.describe()} for name, kind in RULES.items()]}


def known(service: Service, name: str) -> str:
    """The name of a model; 404 if there is none."""
    if name not in service.models:
        raise HTTPException(404, f"there is no model {name[:100]!r}; there are {', '.join(service.models)}.")
    return name


def _add_models(app: FastAPI, service: Service) -> None:
    async def chosen_rule(name: str, kind: str | None, value: float | None) -> Any:
        if kind is None:
            return await service.look(service.rule, name)
        option, fixed = SLIDERS.get(kind, ("k", {}))
        options = None if value is None else {**fixed, option: value}
        return await service.look(service.rule, name, kind, options)

    @app.get("/models/{name}/curve", tags=["models"])
    async def curve(name: Name, kind: Kind = "average-k") -> Response:
        """Size, error, worst class and empty sets by the rule's option, on held-out rows; computed once."""
        found = service.finished_curve(known(service, name), kind)
        return json_response(await service.study(service.curve, name, kind) if found is None else found)

    @app.get("/models/{name}/figures", tags=["models"])
    async def one_point(name: Name, kind: Kind | None = None, value: Value = None) -> Response:
        """What one rule gives on held-out rows: a point of its curve, also between the steps."""
        rule = await chosen_rule(known(service, name), kind, value)
        held_out = await service.look(service.need_held_out, name)
        return json_response({"rule": describe_rule(rule), **await service.look(figures, held_out, rule)})

    @app.get("/models/{name}/rows", tags=["models"])
    async def rows(
        name: Name,
        row: Annotated[int | None, Query(ge=0, lt=1 << 40, description="this row alone, by its number")] = None,
        show: Show = "all",
        label: Annotated[str | None, Query(max_length=1000)] = None,
        kind: Kind | None = None,
        value: Value = None,
        offset: Offset = 0,
        limit: Annotated[int, Query(ge=1, le=200)] = 20,
    ) -> Response:
        """Held-out rows with the answers of all models of the same data."""
        rule = await chosen_rule(known(service, name), kind, value)

        def found() -> dict[str, Any]:
            peers = service.peers(name, rule)
            held_out = next(iter(peers))
            places = find_rows(held_out, "all" if row is not None else show, peers, label=label)
            start, most = (offset, limit) if row is None else (place_of(held_out, row), 1)
            return {"offset": start, **rows_page(held_out, places, peers, offset=start, limit=most)}

        return json_response(await service.look(found))

    @app.get("/models/{name}/labels", tags=["models"])
    async def labels(
        name: Name,
        search: Annotated[str, Query(max_length=1000)] = "",
        sort: Sorted = "support",
        order: Literal["asc", "desc"] = "desc",
        kind: Kind | None = None,
        value: Value = None,
        offset: Offset = 0,
        limit: Annotated[int, Query(ge=1, le=1000)] = 50,
    ) -> Response:
        """Labels with how often they occur, how often they are found, and the sizes of sets that hold them."""
        rule = await chosen_rule(known(service, name), kind, value)
        given: dict[str, Any] = {"search": search, "sort": sort, "descending": order == "desc"}
        held_out = await service.look(service.need_held_out, name)
        return json_response(await service.look(labels_page, held_out, rule, **given, offset=offset, limit=limit))

    @app.get("/models/{name}/labels/{label:path}", tags=["models"])
    async def one_label(
        name: Name,
        label: Annotated[str, Path(description="a label's name, or its number", max_length=1000)],
        kind: Kind | None = None,
        value: Value = None,
    ) -> Response:
        """One label: its figures, what it is confused with, and rows that have it."""
        rule = await chosen_rule(known(service, name), kind, value)
        held_out = await service.look(service.need_held_out, name)
        return json_response(await service.look(label_page, held_out, rule, label))


def _add_predict(app: FastAPI, service: Service) -> None:
    upload = {
        "type": "object",
        "required": ["image"],
        "properties": {
            "image": {"type": "array", "items": {"type": "string", "format": "binary"}},
            "request": {"type": "string", "description": "the rest of the request as JSON"},
        },
    }
    content = {
        "application/json": {"schema": {"$ref": "#/components/schemas/PredictRequest"}},
        "multipart/form-data": {"schema": upload},
    }

    @app.post(
        "/predict",
        tags=["predict"],
        openapi_extra={"requestBody": {"required": True, "content": content}},
        responses={200: {"model": PredictResponse}, 415: {"model": Error, "description": "another type of body"}},
    )
    async def predict(request: Request) -> Response:
        """The sets of rows, as `shortlist predict` gives them."""
        asked, images = await _read_predict(request)
        found = await asyncio.wait_for(_predict(service, asked, images), service.limits.seconds)
        request.scope["shortlist"] = {"rows": asked.rows, "models": [each["model"] for each in found["answers"]]}
        return json_response(found)


async def _read_predict(request: Request) -> tuple[PredictRequest, list[bytes] | None]:
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type == "application/json":
        return PredictRequest.model_validate_json(await request.body()), None
    if content_type != "multipart/form-data":
        raise HTTPException(415, "the body must be application/json, or multipart/form-data with a file `image`.")
    async with request.form(max_files=64, max_fields=8, max_part_size=1 << 20) as form:
        uploads = [await each.read() for each in form.getlist("image") if not isinstance(each, str)]
        fields = form.get("request") or "{}"
    if not uploads or not isinstance(fields, str):
        raise InputError("the form must have a file `image`, and the rest of the request as JSON in `request`.")
    try:
        given = json.loads(fields)
    except (ValueError, RecursionError) as error:
        raise InputError("`request` must be JSON.") from error
    if not isinstance(given, dict):
        raise InputError("`request` must be a JSON object.")
    return PredictRequest.model_validate({**given, "images": [""] * len(uploads)}), uploads


async def _predict(service: Service, asked: PredictRequest, uploads: list[bytes] | None) -> dict[str, Any]:
    if asked.rows > service.limits.rows:
        raise HTTPException(413, f"a request must have at most {service.limits.rows} rows; got {asked.rows}.")
    if asked.model is not None and asked.model not in service.models:
        raise HTTPException(404, f"there is no model {asked.model[:100]!r}; there are {', '.join(service.models)}.")
    names = [asked.model] if asked.model is not None else await _takers(service, asked)
    images = uploads if uploads is not None or asked.images is None else decode_base64(asked.images)
    return {"answers": list(await asyncio.gather(*(_ask(service, name, asked, images) for name in names)))}


async def _takers(service: Service, asked: PredictRequest) -> list[str]:
    """The models that take such rows."""
    if asked.row is not None:
        return await service.look(service.comparable)
    kind = "text" if asked.texts else "features" if asked.features else "images"
    names = [name for name, model in service.models.items() if model.takes == kind]
    if not names:
        raise InputError(f"no model takes {'texts' if kind == 'text' else kind}.")
    return names


async def _ask(service: Service, name: str, asked: PredictRequest, images: list[bytes] | None) -> dict[str, Any]:
    model, wanted = service.models[name], asked.rule
    if wanted is None:
        rule = service.rule(name)
    else:
        rule = await service.look(service.rule, name, wanted.kind, wanted.options or None)
    if asked.row is not None:
        inputs = await service.look(service.held_out_row, name, asked.row)
    elif images is not None:
        inputs = await service.look(read_rows, model, images=images, most_pixels=service.limits.pixels)
    else:
        inputs = read_rows(model, texts=asked.texts, features=asked.features, most_pixels=service.limits.pixels)
    key = (inputs.kind, getattr(inputs, "shape", None))
    service.metrics.rows(name, len(inputs))
    rows = await service.ask(name, inputs, rule, key=key, seed=asked.seed, top=asked.top)
    if asked.row is not None:
        rows = [{**each, "row": asked.row} for each in rows]
    return {"model": name, "rule": service.describe_rule(rule), "rows": rows}


def _add_decisions(app: FastAPI, service: Service) -> None:
    @app.post("/audit", tags=["audit"], responses={200: {"model": AuditResponse}})
    async def audit(asked: AuditRequest) -> Response:
        """Can the model's output layer ever answer with this set? With a proof, and the nearest set that it can."""
        model, row = service.models[known(service, asked.model)], asked.row

        def found() -> dict[str, Any]:
            if row is None:
                numbers = [label_number(model.labels, name) for name in asked.labels or ()]
            else:
                held_out = service.need_held_out(asked.model)
                numbers = held_out.shown.labels_of(place_of(held_out, row))
            if len(set(numbers)) < len(numbers):
                raise InputError("`labels` must be different.")
            return service.auditor(asked.model).audit(numbers, mode=asked.mode)

        return json_response(await service.look(found))

    @app.post("/rules", tags=["rules"], responses={200: {"model": SaveResponse}, 409: {"model": Error}})
    async def save(asked: SaveRequest) -> Response:
        """Fit a rule on held-out rows and save it into the model's folder, or show how to."""
        model = service.models[known(service, asked.model)]
        held_out = await service.look(service.need_held_out, asked.model)
        command, python = equivalents(str(model.folder), held_out.data, asked.kind, asked.options)
        shown: dict[str, Any] = {"command": command, "python": python}
        if asked.dry_run:
            rule = await service.look(service.rule, asked.model, asked.kind, asked.options)
            shown |= {"saved": False, "file": str(model.folder / "rule.json"), "kept": None}
            return json_response({**shown, "rule": describe_rule(rule)})
        if service.read_only:
            raise HTTPException(403, "the service was started with --read-only, so it saves no rules.")
        if model.rule is not None and not asked.replace:
            own = describe_rule(model.rule)["text"]
            raise HTTPException(409, f"`{asked.model}` answers with {own}: `replace` must be true to change that.")
        file, kept = await service.look(service.exclusively, save_fitted, held_out, asked.kind, asked.options)
        shown |= {"saved": True, "file": str(file), "kept": None if kept is None else str(kept)}
        return json_response({**shown, "rule": None if model.rule is None else describe_rule(model.rule)})


def json_response(content: Any) -> Response:
    """JSON from plain values, or from bytes that are JSON already."""
    body = (
        content if isinstance(content, bytes) else json.dumps(content, allow_nan=False, separators=(",", ":")).encode()
    )
    return Response(body, media_type="application/json")

"""The service over HTTP: its routes, their requests and answers, and the page."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from importlib.resources import files
from typing import Annotated, Any, Literal

from fastapi import FastAPI, HTTPException, Path, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from starlette.exceptions import HTTPException as StarletteHTTPException

from shortlist import __version__
from shortlist.errors import InputError
from shortlist.predict import RULES
from shortlist.serve.batching import QueueFullError, WorkerDiedError
from shortlist.serve.browse import find_rows, label_page, labels_page, rows_page
from shortlist.serve.curves import SLIDERS, describe_rule
from shortlist.serve.inputs import decode_base64, read_rows
from shortlist.serve.service import Service

_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".json": "application/json",
}
Kind = Literal[
    "top-k",
    "average-k",
    "per-label",
    "average-error",
    "pointwise-error",
    "class-conditional",
    "recall-control",
    "risk-control",
]
Name = Annotated[str, Path(description="the name of a model")]
Show = Literal["all", "missed", "disagree", "empty", "huge", "rare", "label"]


class RuleRequest(BaseModel):
    """A kind of rule and its options; without options, the rule of that kind in the model's folder."""

    model_config = ConfigDict(extra="forbid")
    kind: str = Field(examples=["average-k"])
    options: dict[str, float | bool | str] = Field(default_factory=dict, examples=[{"k": 3}])


class PredictRequest(BaseModel):
    """Rows to answer: texts, features, images or one held-out row."""

    model_config = ConfigDict(extra="forbid")
    model: str | None = Field(None, description="the name of a model; null asks all that take such rows")
    texts: list[str] | None = Field(None, min_length=1)
    features: list[list[float]] | None = Field(None, min_length=1, description="one list of numbers per row")
    images: list[str] | None = Field(None, min_length=1, description="image files in base64")
    row: int | None = Field(None, ge=0, lt=1 << 62, description="the number of a held-out row")
    rule: RuleRequest | None = Field(None, description="null is each model's own rule")
    top: int = Field(0, ge=0, le=1000, description="how many of the best labels are listed, in the set or not")
    seed: int | None = Field(None, ge=0, lt=1 << 62, description="of the random numbers that break ties")

    @model_validator(mode="after")
    def _one_kind(self) -> PredictRequest:
        given = [name for name in ("texts", "features", "images", "row") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(
                f"one of texts, features, images and row must be given; got {' and '.join(given) or 'none'}"
            )
        return self

    @property
    def rows(self) -> int:
        """How many rows."""
        return len(self.texts or self.features or self.images or (0,))


def make_app(service: Service) -> FastAPI:
    """The application, which starts and stops the service with itself."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        service.start()
        yield
        await service.close()

    app = FastAPI(title="shortlist", version=__version__, lifespan=lifespan, docs_url=None, redoc_url=None)
    _add_errors(app)
    _add_page(app)
    _add_models(app, service)
    _add_predict(app, service)
    return app


def _add_errors(app: FastAPI) -> None:
    """Every error is one sentence."""

    @app.exception_handler(InputError)
    async def _input(_: Request, error: InputError) -> Response:
        return refusal(422, str(error))

    @app.exception_handler(RequestValidationError)
    async def _invalid(_: Request, error: RequestValidationError) -> Response:
        return refusal(422, _sentence(error.errors()))

    @app.exception_handler(ValidationError)
    async def _body(_: Request, error: ValidationError) -> Response:
        return refusal(422, _sentence(error.errors()))

    @app.exception_handler(StarletteHTTPException)
    async def _http(_: Request, error: StarletteHTTPException) -> Response:
        return refusal(error.status_code, str(error.detail), error.headers)

    @app.exception_handler(QueueFullError)
    async def _full(_: Request, error: QueueFullError) -> Response:
        return refusal(429, str(error), {"Retry-After": str(error.retry_after)})

    @app.exception_handler(WorkerDiedError)
    async def _died(_: Request, error: WorkerDiedError) -> Response:
        return refusal(503, str(error), {"Retry-After": "1"})

    @app.exception_handler(TimeoutError)
    async def _late(_: Request, error: TimeoutError) -> Response:
        return refusal(504, "the answer took longer than the service waits.")


def refusal(status: int, sentence: str, headers: Mapping[str, str] | None = None) -> Response:
    """An error as one sentence of JSON."""
    return JSONResponse({"error": sentence}, status, headers=None if headers is None else dict(headers))


def _sentence(errors: Any) -> str:
    first = errors[0]
    where = ".".join(str(part) for part in first["loc"] if part not in ("body", "query", "path"))
    rule = str(first["msg"]).removeprefix("Value error, ").rstrip(".")
    return f"`{where}`: {rule}." if where else f"{rule}."


def _add_page(app: FastAPI) -> None:
    """The page and its files, read once: no name in a request is a path."""
    folder = files("shortlist.serve") / "page"
    content = {}
    for file in folder.iterdir() if folder.is_dir() else ():
        suffix = "." + file.name.rpartition(".")[2]
        if suffix in _TYPES:
            content[file.name] = (file.read_bytes(), _TYPES[suffix])

    @app.get("/", include_in_schema=False)
    async def _page() -> Response:
        body, media_type = content.get("index.html", (b"<title>shortlist</title>", _TYPES[".html"]))
        return Response(body, media_type=media_type)

    @app.get("/static/{name}", include_in_schema=False)
    async def _static(name: str) -> Response:
        if name not in content:
            raise HTTPException(404, "there is no such file.")
        body, media_type = content[name]
        return Response(body, media_type=media_type)


def _add_models(app: FastAPI, service: Service) -> None:
    Name = Annotated[str, Path(description="the name of a model")]

    def known(name: str) -> str:
        if name not in service.models:
            raise HTTPException(404, f"there is no model {name[:100]!r}; there are {', '.join(service.models)}.")
        return name

    async def chosen_rule(name: str, kind: str | None, value: float | None) -> Any:
        if kind is None:
            return await service.study(service.rule, name)
        option, fixed = SLIDERS.get(kind, ("k", {}))
        options = None if value is None else {**fixed, option: value}
        return await service.study(service.rule, name, kind, options)

    @app.get("/healthz", tags=["service"])
    async def health() -> dict[str, str]:
        """Say that the service answers."""
        return {"status": "ok"}

    @app.get("/models", tags=["models"])
    async def models() -> dict[str, Any]:
        """The loaded models."""
        return {"models": [service.describe(name) for name in service.models]}

    @app.get("/rules", tags=["rules"])
    async def rules() -> dict[str, Any]:
        """The kinds of rules, what they take and what they guarantee."""
        return {"rules": [{"kind": name, **kind.describe()} for name, kind in RULES.items()]}

    @app.get("/models/{name}/curve", tags=["models"])
    async def curve(name: Name, kind: Kind = "average-k") -> Response:
        """Size, error, worst class and empty sets by the rule's option, on held-out rows; computed once."""
        return json_response(await service.study(service.curve, known(name), kind))

    @app.get("/models/{name}/rows", tags=["models"])
    async def rows(
        name: Name,
        show: Show = "all",
        label: Annotated[str | None, Query(max_length=1000)] = None,
        kind: Kind | None = None,
        value: Annotated[float | None, Query(allow_inf_nan=False)] = None,
        offset: Annotated[int, Query(ge=0, lt=1 << 40)] = 0,
        limit: Annotated[int, Query(ge=1, le=200)] = 20,
    ) -> Response:
        """Held-out rows with the answers of all models of the same data."""
        rule = await chosen_rule(known(name), kind, value)

        def found() -> dict[str, Any]:
            peers = service.peers(name, rule)
            held_out = next(iter(peers))
            places = find_rows(held_out, show, peers, label=label)
            return rows_page(held_out, places, peers, offset=offset, limit=limit)

        return json_response(await service.study(found))

    @app.get("/models/{name}/labels", tags=["models"])
    async def labels(
        name: Name,
        search: Annotated[str, Query(max_length=1000)] = "",
        sort: Literal["support", "recall", "size", "name"] = "support",
        order: Literal["asc", "desc"] = "desc",
        kind: Kind | None = None,
        value: Annotated[float | None, Query(allow_inf_nan=False)] = None,
        offset: Annotated[int, Query(ge=0, lt=1 << 40)] = 0,
        limit: Annotated[int, Query(ge=1, le=1000)] = 50,
    ) -> Response:
        """Labels with how often they occur, how often they are found, and the sizes of sets that hold them."""
        rule = await chosen_rule(known(name), kind, value)
        given: dict[str, Any] = {"search": search, "sort": sort, "descending": order == "desc"}
        held_out = await service.study(service.need_held_out, name)
        return json_response(await service.study(labels_page, held_out, rule, **given, offset=offset, limit=limit))

    @app.get("/models/{name}/labels/{label:path}", tags=["models"])
    async def one_label(
        name: Name,
        label: Annotated[str, Path(description="a label's name, or its number", max_length=1000)],
        kind: Kind | None = None,
        value: Annotated[float | None, Query(allow_inf_nan=False)] = None,
    ) -> Response:
        """One label: its figures, what it is confused with, and rows that have it."""
        rule = await chosen_rule(known(name), kind, value)
        held_out = await service.study(service.need_held_out, name)
        return json_response(await service.study(label_page, held_out, rule, label))


def _add_predict(app: FastAPI, service: Service) -> None:
    body = {"application/json": {"schema": PredictRequest.model_json_schema()}}

    @app.post("/predict", tags=["predict"], openapi_extra={"requestBody": {"required": True, "content": body}})
    async def predict(request: Request) -> Response:
        """The sets of rows, as `shortlist predict` gives them."""
        asked, images = await _read_predict(request)
        return json_response(await asyncio.wait_for(_predict(service, asked, images), service.limits.seconds))


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
    names = [asked.model] if asked.model is not None else _takers(service, asked)
    images = uploads if uploads is not None or asked.images is None else decode_base64(asked.images)
    return {"answers": list(await asyncio.gather(*(_ask(service, name, asked, images) for name in names)))}


def _takers(service: Service, asked: PredictRequest) -> list[str]:
    """The models that take such rows."""
    if asked.row is not None:
        first = next(iter(service.models))
        own = service.held_out(first)
        key = None if own is None else own.key
        return [name for name in service.models if (found := service.held_out(name)) is not None and found.key == key]
    kind = "text" if asked.texts else "features" if asked.features else "images"
    kinds = ("features", "sparse features") if kind == "features" else (kind,)
    names = [name for name, model in service.models.items() if model.kind in kinds]
    if not names:
        raise InputError(f"no model takes {'texts' if kind == 'text' else kind}.")
    return names


async def _ask(service: Service, name: str, asked: PredictRequest, images: list[bytes] | None) -> dict[str, Any]:
    model, wanted = service.models[name], asked.rule
    if wanted is None:
        rule = service.rule(name)
    else:
        rule = await service.study(service.rule, name, wanted.kind, wanted.options or None)
    if asked.row is not None:
        inputs = await service.study(service.held_out_row, name, asked.row)
    elif images is not None:
        inputs = await service.study(read_rows, model, images=images, most_pixels=service.limits.pixels)
    else:
        inputs = read_rows(model, texts=asked.texts, features=asked.features, most_pixels=service.limits.pixels)
    key = (inputs.kind, getattr(inputs, "shape", None))
    rows = await service.ask(name, inputs, rule, key=key, seed=asked.seed, top=asked.top)
    if asked.row is not None:
        rows = [{**each, "row": asked.row} for each in rows]
    return {"model": name, "rule": describe_rule(rule), "rows": rows}


def json_response(content: Any) -> Response:
    """JSON from plain values, or from bytes that are JSON already."""
    body = (
        content if isinstance(content, bytes) else json.dumps(content, allow_nan=False, separators=(",", ":")).encode()
    )
    return Response(body, media_type="application/json")

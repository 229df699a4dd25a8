"""What a browser shows: the page and its files, and the documentation of the routes."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

from fastapi import FastAPI, HTTPException, Response
from pydantic.json_schema import models_json_schema

from shortlist.extras import require
from shortlist.serve.http.schemas import PredictRequest

_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".json": "application/json",
}


def add_pages(app: FastAPI) -> None:
    """Add the page, its files and the documentation; all are read now, so that no name in a request is a path."""
    own, folder = files("shortlist.serve.http"), files("shortlist.serve") / "page"
    shared = [files("shortlist.report.comparison") / name for name in ("chart.js", "theme.css")]
    content: dict[str, tuple[bytes, str]] = {}
    for file in [own / "docs.css", *shared, *(folder.iterdir() if folder.is_dir() else ())]:
        suffix = f".{file.name.rpartition('.')[2]}"
        if suffix in _TYPES:
            content[file.name] = (file.read_bytes(), _TYPES[suffix])
    describe = app.openapi
    app.openapi = lambda: _with_bodies(describe())
    docs: list[bytes] = []

    @app.get("/", include_in_schema=False)
    async def page() -> Response:
        body, media_type = content.get("index.html", (b"<!doctype html><title>shortlist</title>", _TYPES[".html"]))
        return Response(body, media_type=media_type)

    @app.get("/static/{name}", include_in_schema=False)
    async def static(name: str) -> Response:
        if name not in content:
            raise HTTPException(404, "there is no such file.")
        body, media_type = content[name]
        return Response(body, media_type=media_type)

    @app.get("/docs", include_in_schema=False)
    async def documentation() -> Response:
        if not docs:
            docs.append(_docs_page(app.openapi()).encode())
        return Response(docs[0], media_type=_TYPES[".html"])


def _with_bodies(document: dict[str, Any]) -> dict[str, Any]:
    """Add the schemas of bodies that a route reads itself, because it takes more than one type."""
    _, found = models_json_schema([(PredictRequest, "validation")], ref_template="#/components/schemas/{model}")
    document["components"]["schemas"] |= found["$defs"]
    return document


def _docs_page(document: dict[str, Any]) -> str:
    """The OpenAPI document as a page of its own: those of FastAPI load scripts from other sites."""
    jinja = require("jinja2", extra="serve")
    source = (files("shortlist.serve.http") / "docs.html.jinja").read_text(encoding="utf-8")
    environment = jinja.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters["json"] = lambda value: json.dumps(value, indent=2, ensure_ascii=False)
    operations = [
        {"path": path, "method": method.upper(), **about}
        for path, methods in document["paths"].items()
        for method, about in methods.items()
    ]
    schemas = document["components"]["schemas"]
    return environment.from_string(source).render(info=document["info"], operations=operations, schemas=schemas)

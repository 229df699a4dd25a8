"""``shortlist serve``: try models, choose their rules and audit their answers, in the browser and over HTTP."""

from __future__ import annotations

import argparse
from typing import Any

from shortlist.cli.options import add_parser, whole_number

_EXAMPLES = """\
examples:
  shortlist serve out/pubmed
  shortlist serve plants-model --data more-plants.csv --port 8080
"""


def add_command(commands: Any) -> None:
    """Add the command to the parser."""
    parser = add_parser(
        commands,
        "serve",
        run,
        help="try models in the browser, and answer over HTTP",
        about="Serve saved models: a page to try them and to choose their rules, and an HTTP service.",
        epilog=_EXAMPLES,
    )
    parser.add_argument("folders", metavar="FOLDER", nargs="+", help="folder of a model or of a comparison")
    parser.add_argument("--data", metavar="PATH", help="held-out rows with labels (default: the data of the training)")
    parser.add_argument("--host", metavar="ADDRESS", default="127.0.0.1", help="default 127.0.0.1")
    parser.add_argument("--port", metavar="N", type=whole_number(at_least=0, below=1 << 16), default=8000)
    parser.add_argument("--workers", metavar="N", type=whole_number(at_least=0), default=0)
    parser.add_argument("--engine", choices=("auto", "torch", "onnx"), default="auto")


def run(options: argparse.Namespace) -> int:
    """Serve until interrupted."""
    from shortlist.extras import require

    require("fastapi", extra="serve")
    uvicorn = require("uvicorn", extra="serve")
    from shortlist.serve.app import make_app
    from shortlist.serve.service import Service

    service = Service(options.folders, data=options.data, engine=options.engine, workers=options.workers)
    uvicorn.run(make_app(service), host=options.host, port=options.port)
    return 0

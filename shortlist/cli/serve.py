"""``shortlist serve``: try models, choose their rules and audit their answers, in the browser and over HTTP."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

from shortlist.cli.options import add_parser, whole_number
from shortlist.errors import InputError
from shortlist.extras import require

_TOKEN = "SHORTLIST_TOKEN"
_EXAMPLES = """\
examples:
  shortlist serve out/pubmed
  shortlist serve plants-model photos-model --port 8080
  shortlist serve plants-model --data more-plants.csv --workers 4
  SHORTLIST_TOKEN=... shortlist serve plants-model --host 0.0.0.0 --name plants.example.org
  curl localhost:8000/predict -H 'content-type: application/json' -d '{"texts": ["a rose is a rose"]}'

FOLDER is a model saved by `shortlist fit`, or a comparison, of which each candidate's first seed is served; for another
seed, name its own folder, such as out/pubmed/bce-1. The page is at http://127.0.0.1:8000, the routes are described at
/docs. Answers equal those of `shortlist predict`.

The page shows and fits rules on held-out rows: the validation and test rows of the data of the training, if they are
still where they were, or a file with labels in --data. Without either, the models still answer and can be audited.
Where a folder holds model.onnx, from `shortlist export`, of the model as it is now, ONNX runtime computes its scores.

The service is for this machine alone: --host makes it reachable from others, and needs a token in the environment
variable SHORTLIST_TOKEN or in the file --token-file, which requests bear (Authorization: Bearer TOKEN). Behind a proxy,
--name says what it is called there. A request whose Host is another name, or that comes from another site's page, is
refused. Put a proxy with TLS before it on networks that are not yours.

Requests that wait for a model go through it together. More than --queue of them are refused (429), and so are requests
with more than --max-rows rows (413), --max-bytes bytes (413) or --max-pixels pixels (422), or that take longer than
--timeout seconds (504). With --workers N, processes compute the answers, on one copy of the parameters in memory; one
that dies is replaced, and what it worked on is given to another. The log is a line of JSON per request, without what
the request holds; /metrics is for Prometheus.
exit code: 0 when stopped (Ctrl-C or SIGTERM: requests under way are answered first), 2 on errors.
"""


def add_command(commands: Any) -> None:
    """Add the command to the parser."""
    parser = add_parser(
        commands,
        "serve",
        run,
        help="try models in the browser, and answer over HTTP",
        about="Serve saved models: a page to try them, to choose their rules and to audit them, and an HTTP service.",
        epilog=_EXAMPLES,
    )
    count = whole_number(at_least=1)
    parser.add_argument("folders", metavar="FOLDER", nargs="+", help="folder of a model or of a comparison")
    parser.add_argument("--data", metavar="PATH", help="held-out rows with labels (default: the data of the training)")
    parser.add_argument(
        "--host", metavar="ADDRESS", default="127.0.0.1", help="address to listen on (default 127.0.0.1)"
    )
    parser.add_argument(
        "--port", metavar="N", type=whole_number(at_least=0, below=1 << 16), default=8000, help="default 8000; 0: any"
    )
    parser.add_argument(
        "--name", metavar="NAME", action="append", default=[], help="a name that the service is called by; may repeat"
    )
    parser.add_argument("--token-file", metavar="FILE", help="file that holds the token (default: SHORTLIST_TOKEN)")
    parser.add_argument(
        "--workers",
        metavar="N",
        type=whole_number(at_least=0),
        default=0,
        help="processes that compute answers (default 0: a thread of the service)",
    )
    parser.add_argument(
        "--engine", choices=("auto", "torch", "onnx"), default="auto", help="what computes scores (default auto)"
    )
    parser.add_argument("--read-only", action="store_true", help="save no rules into the folders")
    parser.add_argument("--batch", metavar="N", type=count, default=64, help="rows at a time (default 64)")
    parser.add_argument("--queue", metavar="N", type=count, default=256, help="requests that wait (default 256)")
    parser.add_argument("--max-rows", metavar="N", type=count, default=1024, help="per request (default 1024)")
    parser.add_argument("--max-bytes", metavar="N", type=count, default=1 << 25, help="per request (default 2^25)")
    parser.add_argument("--max-pixels", metavar="N", type=count, default=1 << 24, help="of an image (default 2^24)")
    parser.add_argument("--timeout", metavar="SECONDS", type=count, default=30, help="per prediction (default 30)")


def run(options: argparse.Namespace) -> int:
    """Serve until interrupted."""
    for module in ("fastapi", "uvicorn", "python_multipart"):
        require(module, extra="serve")
    from shortlist.serve.http.guard import is_loopback
    from shortlist.serve.http.server import serve
    from shortlist.serve.service import Limits, Service

    token = _token(options)
    if token is None and not is_loopback(options.host):
        raise InputError(
            f"--host {options.host} makes the service reachable from other machines, so it needs a token: set "
            f"{_TOKEN}, or name a file in --token-file."
        )
    limits = Limits(
        rows=options.max_rows,
        bytes=options.max_bytes,
        pixels=options.max_pixels,
        seconds=options.timeout,
        waiting=options.queue,
        batch=options.batch,
    )
    service = Service(
        options.folders,
        data=options.data,
        engine=options.engine,
        workers=options.workers,
        limits=limits,
        read_only=options.read_only,
    )
    names = [*options.name, *([] if options.host in ("0.0.0.0", "::") else [options.host])]
    serve(service, host=options.host, port=options.port, names=names, token=token, tell=_tell)
    return 0


def _tell(address: str) -> None:
    sys.stdout.write(f"shortlist: serving at {address} (Ctrl-C stops)\n")
    sys.stdout.flush()


def _token(options: argparse.Namespace) -> str | None:
    found = os.environ.get(_TOKEN)
    where = f"the environment variable {_TOKEN}"
    if options.token_file is not None:
        where = f"`{options.token_file}`"
        try:
            found = Path(options.token_file).read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"{where} cannot be read as a token.") from error
    if found is None:
        return None
    if len(found) < 16 or not found.isascii() or not found.isprintable() or " " in found:
        raise InputError(f"{where} must hold a token of at least 16 visible ASCII characters.")
    return found

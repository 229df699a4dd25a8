"""``shortlist export``: a saved model as one file for other programs."""

from __future__ import annotations

import argparse
import logging
import sys
import warnings
from pathlib import Path
from typing import Any

from shortlist.cli.console import print_json
from shortlist.cli.options import add_json_option, add_parser
from shortlist.files import check_output, writing

_EXAMPLES = """\
examples:
  shortlist export plants-model --onnx
  shortlist export mesh-model --onnx mesh.onnx
  shortlist export photos-model --onnx trained.onnx --from-features

The graph maps `inputs` to `logits` and, with the model's rule, to `sets`, a mask of labels. Label names and, for texts,
the vocabulary are metadata of the file; in Python, `shortlist.predict.OnnxModel("mesh.onnx").predict(["a rose"])` needs
nothing else. Other programs compute the features of a text as shortlist.data.encoders.word_features describes them.
exit code: 0, or 2 on errors.
"""


def add_command(commands: Any) -> None:
    """Add the command to the parser."""
    parser = add_parser(
        commands,
        "export",
        run,
        help="write a saved model as ONNX",
        about="Write a saved model, with its rule, as one ONNX file.",
        epilog=_EXAMPLES,
    )
    parser.add_argument("model", metavar="MODEL", help="folder of a model saved by `shortlist fit`")
    parser.add_argument(
        "--onnx",
        metavar="FILE",
        nargs="?",
        const="",
        required=True,
        help="where to write it (default MODEL/model.onnx)",
    )
    parser.add_argument(
        "--from-features", action="store_true", help="for a model on frozen features: export the trained part alone"
    )
    add_json_option(parser, "the file and its size")


def run(options: argparse.Namespace) -> int:
    """Write the file."""
    path = Path(options.onnx or Path(options.model) / "model.onnx")
    check_output(path)

    from shortlist.formatting import format_bytes
    from shortlist.train import export_onnx, load_model

    saved = load_model(options.model)
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)  # It reports packages that this model does not need.
    with writing(path), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns about its own deprecated parts.
        export_onnx(saved, path, from_features=options.from_features)
    size = path.stat().st_size
    if options.json:
        print_json({"output": str(path), "bytes": size, "labels": len(saved.label_names)})
    else:
        sets = "logits and sets" if saved.rule is not None else "logits"
        sys.stdout.write(f"{path}: {format_bytes(size)}, {sets} of {len(saved.label_names):,} labels\n")
    return 0

"""Small models of every kind of input, and `shortlist serve` as its own process, for the tests of the page."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from shortlist.cli import main

HOSTILE = "<img src=x onerror=alert(1)>"
WORDS = ("red", "green", "blue", "white", "black", "gray", "pink", "gold", "teal", HOSTILE)
_CANDIDATES = """\
text: hashed
text_options: {num_features: 512}
encoder: bag
encoder_options: {dim: 16}
learning_rate: 0.05
k: 2
epochs: 3
seeds: 1
tune: 0
candidates:
  wide: {loss: bce}
  narrow: {loss: bce, head: bottleneck, head_options: {bottleneck: 2}}
"""


def train(folder: Path) -> list[Path]:
    """Write data and train on them: two models of texts with sets of labels, one of features, one of images."""
    draw = random.Random(0)
    texts = []
    for _ in range(400):
        names = draw.sample(WORDS, draw.randint(1, 3))
        spoken = [f"word{WORDS.index(name)}" for name in names * 2] + draw.choices(["thing", "other"], k=4)
        texts.append(f"{' '.join(draw.sample(spoken, len(spoken)))},{'|'.join(names)}")
    (folder / "texts.csv").write_text("text,labels\n" + "\n".join(texts) + "\n")
    rows = []
    for _ in range(400):
        kind = draw.randrange(4)
        rows.append(",".join(f"{draw.gauss(2 * (kind == place), 1):.3f}" for place in range(4)) + f",kind {kind}")
    (folder / "features.csv").write_text("a,b,c,d,label\n" + "\n".join(rows) + "\n")
    (folder / "texts.yaml").write_text(_CANDIDATES)
    texts_run = ["compare", str(folder / "texts.csv"), "--config", str(folder / "texts.yaml")]
    assert main([*texts_run, "--output", str(folder / "texts")]) == 0
    quick = ["--epochs", "2", "--tune", "0"]
    assert main(["fit", str(folder / "features.csv"), *quick, "--output", str(folder / "features")]) == 0
    assert main(["fit", "digits", *quick, "--output", str(folder / "digits")]) == 0
    return [folder / name for name in ("texts", "features", "digits")]


@contextmanager
def serving(*arguments: str | Path, token: str | None = None) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """`shortlist serve` on a free port, once its held-out rows are read: its address, and the process."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **({"SHORTLIST_TOKEN": token} if token else {})}
    command = [sys.executable, "-m", "shortlist", "serve", *map(str, arguments), "--port", "0"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
    with subprocess.Popen(command, env=environment, **pipes) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            address = line.split(" at ", 1)[1].split()[0]
            while _is_opening(address, token):
                assert process.poll() is None
            yield address, process
        finally:
            process.terminate()


def _is_opening(address: str, token: str | None) -> bool:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    with urllib.request.urlopen(urllib.request.Request(f"{address}/models", headers=headers)) as answer:
        return any(model["held_out_state"] == "opening" for model in json.load(answer)["models"])

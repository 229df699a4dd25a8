"""Models of the command line, trained in a tenth of a second each, and the files that they answer to."""

import io
import json
from contextlib import redirect_stdout
from pathlib import Path

import numpy as np

from shortlist.cli import main
from tests.train.small_data import classes, features, label_sets

DATA = classes()
VALUES = features(DATA).numpy()
NAMES = [DATA.label_names[int(label)] for label in DATA.targets]
PARTS = [("train", "val", "test")[int(part)] for part in DATA.split.index]
QUICK = ["--epochs", "1", "--k", "2", "--tune", "0", "--encoder_options", "{hidden: [8]}"]


def reader(**more: str) -> list[str]:
    """How the tables are read, as an option."""
    return ["--reader", json.dumps({"label": "species", "features": ["a", "b", "c", "d"], **more})]


def write_table(path: str, values: np.ndarray = VALUES, delimiter: str = ",", **columns: list[str]) -> None:
    """Features a, b, c, d and further columns."""
    names = ["a", "b", "c", "d"][: values.shape[1]]
    lines = [delimiter.join([*names, *columns])]
    for row, numbers in enumerate(values.tolist()):
        lines.append(delimiter.join([*map(repr, numbers), *(column[row] for column in columns.values())]))
    Path(path).write_text("\n".join(lines) + "\n")


def write_images(folder: str, count: int = 10, size: tuple[int, int] = (8, 8)) -> None:
    """Write images of three classes that differ in color."""
    from PIL import Image

    for place, name in enumerate(("daisy", "owl", "rose")):
        Path(folder, name).mkdir(parents=True, exist_ok=True)
        for number in range(count):
            Image.new("RGB", size, (100 * place, number, 0)).save(Path(folder, name, f"{number}.png"))


def write_features() -> None:
    """A table with parts, one without, arrays of classes and of sets, in the current folder."""
    write_table("parts.csv", species=NAMES, part=PARTS)
    write_table("plain.csv", species=NAMES)
    np.savez("arrays.npz", x=VALUES, y=DATA.targets.numpy(), label_names=np.array(DATA.label_names))
    np.savez("sets.npz", x=VALUES, y=label_sets().targets.numpy().astype(bool))


def write_files() -> None:
    """Data of every kind to train on, in the current folder."""
    write_features()
    lines = [f"{name} is a word,{name}" for name in ("owl", "fox", "hare") for _ in range(20)]
    Path("texts.csv").write_text("words,label\n" + "\n".join(lines) + "\n")
    write_images("photos")


def train(model: str, data: str, *options: str, reader: dict[str, object] | None = None) -> dict[str, float]:
    """Run ``shortlist fit`` and return its metrics."""
    read = [] if reader is None else ["--reader", json.dumps(reader)]
    with redirect_stdout(io.StringIO()) as out:
        assert main(["fit", data, *read, *QUICK, "--json", *options, "--output", model]) == 0
    return json.loads(out.getvalue())


def train_all() -> dict[str, dict[str, float]]:
    """A model of each kind of data, in the current folder."""
    write_files()
    return {
        "parts": train("parts", "parts.csv", reader={"label": "species", "split": "part"}),
        "plain": train("plain", "plain.csv", reader={"label": "species"}),
        "arrays": train("arrays", "arrays.npz"),
        "binary": train("binary", "arrays.npz", "--loss", "average_k"),
        "sets": train("sets", "sets.npz", "--loss", "bce"),
        "texts": train("texts", "texts.csv", reader={"text": "words"}),
        "photos": train("photos-model", "photos", "--encoder_options", "{width: 2}", reader={"size": [4, 6]}),
    }

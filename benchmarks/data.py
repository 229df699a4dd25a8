"""Reading and opening data, in time and memory: ``python -m benchmarks.data``.

Text of the Extreme Classification Repository against scikit-learn's ``load_svmlight_file``; a million such rows as a
stream; a file of 10 GB of features and a folder of 300,000 images, only opened. Prints a table and writes
``benchmarks/results/data.json``. Large files are written to a temporary folder and are mostly holes.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from sklearn.datasets import load_svmlight_file

from benchmarks.side_by_side import PEAK_RESET, colored, machine, medians, resident, write_json
from shortlist.data.formats.extreme_text import read_extreme_text, stream_extreme_text

RESULTS = Path(__file__).parent / "results"
ROWS, STREAMED_ROWS = 20_000, (100_000, 1_000_000)
NUM_FEATURES, NUM_LABELS, FEATURES_PER_ROW, LABELS_PER_ROW = 100_000, 5_000, 50, 5
ARRAY_ROWS, ARRAY_WIDTH = 2_500_000, 1_024
IMAGES, CLASSES = 300_000, 1_081
READING_GOAL, OPENING_GOAL, STREAM_GOAL = 1.0, 2.0, 64.0
"""At least so many times faster than scikit-learn; at most so many seconds; at most so many MiB, whatever the rows."""
INDEX_GOAL = {"10 GB .npy": 100.0, "10 GB .safetensors": 100.0, "300,000 images": 100.0}
"""At most so many MiB; the labels of the features alone take 19, the names of the images 13."""

Spelling = Callable[[float], str]
SPELLINGS: dict[str, Spelling] = {
    "six decimals": lambda value: f"{value:.6f}",
    "all digits of float64": repr,
    "with signs and exponents": lambda value: f"{(value - 0.5) * 1e-3:.4e}",
}


def lines(rows: int, spell: Spelling) -> list[str]:
    """Rows without a header; labels and features ascend, as in published files."""
    chance = np.random.default_rng(0)
    columns = chance.integers(0, NUM_FEATURES // FEATURES_PER_ROW, (rows, FEATURES_PER_ROW))
    columns += np.arange(FEATURES_PER_ROW) * (NUM_FEATURES // FEATURES_PER_ROW)
    labels = chance.integers(0, NUM_LABELS // LABELS_PER_ROW, (rows, LABELS_PER_ROW))
    labels += np.arange(LABELS_PER_ROW) * (NUM_LABELS // LABELS_PER_ROW)
    values = chance.random((rows, FEATURES_PER_ROW))
    return [
        f"{','.join(map(str, tags))} {' '.join(f'{i}:{spell(x)}' for i, x in zip(where, row, strict=True))}\n"
        for tags, where, row in zip(labels.tolist(), columns.tolist(), values.tolist(), strict=True)
    ]


def by_scikit_learn(path: Path) -> Any:
    """The same rows and bounds."""
    load: Any = load_svmlight_file  # Its stubs know neither float32 nor a known base of the indices.
    return load(path, n_features=NUM_FEATURES, multilabel=True, zero_based=True, dtype=np.float32)


def by_shortlist(path: Path) -> Any:
    """With its checks."""
    return read_extreme_text(path, num_features=NUM_FEATURES, num_labels=NUM_LABELS)


def numbers_alone(path: Path) -> int:
    """The rejected design: every separator a blank, then ``numpy.fromstring``; without rows, bounds and checks."""
    table, count = bytes.maketrans(b",:\n", b"   "), 0
    rest = b""
    with path.open("rb") as file:
        while block := file.read(1 << 19):
            whole, _, rest = (rest + block).rpartition(b"\n")
            count += len(np.fromstring(whole.translate(table).decode(), sep=" "))
    return count


def agree(path: Path) -> None:
    """Both readers agree bit for bit, before anything is timed."""
    matrix, labels = by_scikit_learn(path)
    data = by_shortlist(path)
    same = (
        np.array_equal(matrix.indices, data.inputs.columns.numpy())
        and np.array_equal(matrix.data, data.inputs.values.numpy())
        and [label for row in labels for label in row] == data.targets.col_indices().tolist()
    )
    if not same:
        raise ArithmeticError(f"the readers differ on {path}")


def reading(folder: Path) -> list[dict[str, Any]]:
    """Times of both readers, and their ratio."""
    records = []
    for name, spell in SPELLINGS.items():
        path = folder / "rows.txt"
        path.write_text("".join(lines(ROWS, spell)))
        agree(path)
        readers = {"scikit-learn": by_scikit_learn, "shortlist": by_shortlist, "numbers alone": numbers_alone}
        times = medians(
            {key: lambda reader=reader, path=path: reader(path) for key, reader in readers.items()}, rounds=7
        )
        seconds = times["scikit-learn"]
        records.append(
            {
                "values": name,
                "megabytes": path.stat().st_size / 1e6,
                "seconds": times,
                "times_faster": {key: seconds / value for key, value in times.items()},
            }
        )
    return records


def measured(task: str, path: Path) -> dict[str, float]:
    """Seconds, and MiB at the peak beyond the start, in a process of its own."""
    code = f"from benchmarks.data import print_measured; print_measured({task!r}, {str(path)!r})"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return json.loads(run.stdout)


def print_measured(task: str, path: str) -> None:
    """The body of `measured`: a small run first, to load what stays loaded."""
    torch.set_num_threads(1)
    write, step = TASKS[task]
    with TemporaryDirectory() as folder:
        write(Path(folder), small=True)
        step(Path(folder))
    PEAK_RESET.write_text("5")
    before, start = resident("VmRSS"), time.perf_counter()
    step(Path(path))
    seconds = time.perf_counter() - start
    print(json.dumps({"seconds": seconds, "mebibytes": (resident("VmHWM") - before) / 2**20}))


def write_npy(folder: Path, *, small: bool = False) -> None:
    """Features that are a hole in the file, and their labels."""
    rows = 10 if small else ARRAY_ROWS
    with (folder / "features.npy").open("wb") as file:
        header = {"descr": "<f4", "fortran_order": False, "shape": (rows, ARRAY_WIDTH)}
        np.lib.format.write_array_header_1_0(file, header)
        file.truncate(file.tell() + 4 * rows * ARRAY_WIDTH)
    np.save(folder / "labels.npy", np.arange(rows) % CLASSES)


def write_safetensors(folder: Path, *, small: bool = False) -> None:
    """One file with a hole: its length, its header, the features, the labels."""
    rows = 10 if small else ARRAY_ROWS
    end = 4 * rows * ARRAY_WIDTH
    header = json.dumps(
        {
            "features": {"dtype": "F32", "shape": [rows, ARRAY_WIDTH], "data_offsets": [0, end]},
            "labels": {"dtype": "I64", "shape": [rows], "data_offsets": [end, end + 8 * rows]},
        }
    ).encode()
    header += b" " * (-len(header) % 8)
    with (folder / "all.safetensors").open("wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        file.seek(end, 1)
        file.write((np.arange(rows) % CLASSES).astype("<i8").tobytes())


def write_images(folder: Path, *, small: bool = False) -> None:
    """Empty files, in a folder for each class."""
    for label in range(3 if small else CLASSES):
        inside = folder / f"{1355868 + label}"
        inside.mkdir()
        for image in range(3 if small else len(range(label, IMAGES, CLASSES))):
            (inside / f"{label * 1000 + image:040x}.jpg").touch()


def write_stream(folder: Path, *, small: bool = False, rows: int = STREAMED_ROWS[-1]) -> None:
    """The same thousand rows, over and over."""
    block = "".join(lines(1_000, SPELLINGS["six decimals"]))
    times = 1 if small else rows // 1_000
    with (folder / "rows.txt").open("w") as file:
        file.write(f"{times * 1_000} {NUM_FEATURES} {NUM_LABELS}\n")
        for _ in range(times):
            file.write(block)


def open_npy(folder: Path) -> object:
    """Reads only the labels."""
    from shortlist.data.formats.arrays import read_arrays

    return read_arrays(folder / "features.npy")


def open_safetensors(folder: Path) -> object:
    """Reads only the labels."""
    from shortlist.data.formats.arrays import read_arrays

    return read_arrays(folder / "all.safetensors")


def open_images(folder: Path) -> object:
    """Reads only names."""
    from shortlist.data.formats.images.image_folder import read_image_folder

    return read_image_folder(folder)


def stream(folder: Path) -> int:
    """Reads all rows."""
    return sum(len(chunk.inputs) for chunk in stream_extreme_text(folder / "rows.txt"))


TASKS: dict[str, tuple[Callable[..., None], Callable[[Path], object]]] = {
    "10 GB .npy": (write_npy, open_npy),
    "10 GB .safetensors": (write_safetensors, open_safetensors),
    "300,000 images": (write_images, open_images),
    "stream": (write_stream, stream),
}


def opening() -> list[dict[str, Any]]:
    """Seconds and memory of opening large data, with their goals."""
    records = []
    for task, goal in INDEX_GOAL.items():
        with TemporaryDirectory() as folder:
            TASKS[task][0](Path(folder))
            records.append({"task": f"open {task}", **measured(task, Path(folder)), "goals": [OPENING_GOAL, goal]})
    for rows in STREAMED_ROWS:
        with TemporaryDirectory() as folder:
            write_stream(Path(folder), rows=rows)
            task = f"stream {rows:,} rows of {FEATURES_PER_ROW} features"
            records.append({"task": task, **measured("stream", Path(folder)), "goals": [None, STREAM_GOAL]})
    return records


def tables(read: list[dict[str, Any]], opened: list[dict[str, Any]]) -> list[Table]:
    """One of ratios, one of seconds and memory."""
    ratios = Table(title=f"{ROWS:,} rows of extreme-classification text, one thread", title_justify="left")
    for name in ("values", "reader", "milliseconds", "times faster"):
        ratios.add_column(name, justify="left" if name in ("values", "reader") else "right")
    for record in read:
        for reader, seconds in record["seconds"].items():
            faster = record["times_faster"][reader]
            met = faster >= READING_GOAL if reader == "shortlist" else None
            ratios.add_row(record["values"], reader, f"{1000 * seconds:.0f}", colored(f"{faster:.1f}", met))
    sizes = Table(title="large data, in a process of its own", title_justify="left")
    for name in ("task", "seconds", "goal", "MiB beyond the start", "goal"):
        sizes.add_column(name, justify="left" if name == "task" else "right")
    for record in opened:
        cells = [record["task"]]
        for value, goal in zip((record["seconds"], record["mebibytes"]), record["goals"], strict=True):
            cells += [colored(f"{value:.2f}", None if goal is None else value <= goal), f"{goal or ''}"]
        sizes.add_row(*cells)
    return [ratios, sizes]


def main() -> None:
    """Measure, print, write."""
    torch.set_num_threads(1)
    console = Console(width=120)
    with TemporaryDirectory() as folder, console.status("reading"):
        read = reading(Path(folder))
    with console.status("opening"):
        opened = opening() if PEAK_RESET.exists() else []
    for table in tables(read, opened):
        console.print(table)
    console.print(f"goal of reading: at least {READING_GOAL:g} times as fast as scikit-learn")
    setting = {
        "rows": ROWS,
        "features_per_row": FEATURES_PER_ROW,
        "labels_per_row": LABELS_PER_ROW,
        "threads": torch.get_num_threads(),
    }
    goals = {"times_faster": READING_GOAL, "open_seconds": OPENING_GOAL, "open_mebibytes": INDEX_GOAL}
    goals["stream_mebibytes"] = STREAM_GOAL
    result = {"machine": machine(), "setting": setting, "goals": goals, "reading": read, "opening": opened}
    write_json(result, RESULTS / "data.json")
    console.print(f"written: {RESULTS / 'data.json'}")


if __name__ == "__main__":
    main()

"""Every mistake in arguments and files is one sentence with exit code 2; nothing is trained and nothing is written."""

import os
import shlex
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from shortlist.cli import main
from shortlist.sets import AverageError, AverageK
from shortlist.train import SetClassifier
from tests.cli.trained import DATA, NAMES, PARTS, VALUES, write_table

GENERATOR = torch.Generator().manual_seed(0)
LOGITS = 2 * torch.randn(50, 4, generator=GENERATOR)
PROBS = LOGITS.softmax(-1)
CLASSES = torch.multinomial(PROBS, 1, generator=GENERATOR)[:, 0]
HOT = torch.rand(50, 4, generator=GENERATOR) < LOGITS.sigmoid()
EARLY_ROW, TEST_ROW = 35, int(DATA.part_rows("test")[3])
"""Rows of bad files: one in the first block, before any row is finished, and one that is only tested on."""
TRAIN = """--reader '{label: species, features: [a, b, c, d], split: part}' --k 2 --output m"""
"""Options to train on a table with parts."""


@pytest.fixture(scope="module")
def folder(trained_models) -> Path:
    """Good and bad files for all commands, next to models and what they were trained on."""
    before = Path.cwd()
    os.chdir(trained_models.folder)
    try:
        write_score_files()
        write_data_files()
    finally:
        os.chdir(before)
    return trained_models.folder


def write_score_files() -> None:
    arrays = {
        "logits": LOGITS.numpy(),
        "probs": PROBS.numpy(),
        "wide": np.zeros((50, 5), dtype=np.float32),
        "classes": CLASSES.numpy(),
        "hot": HOT.numpy(),
        "absent": np.zeros((50, 4), dtype=bool),
        "scalar": np.array(1.0),
    }
    for name, array in arrays.items():
        np.save(f"{name}.npy", array)
    np.savez("layer.npz", weight=np.eye(3), other=np.eye(3))
    save_file({"head.weight": torch.eye(3)}, "layer.safetensors")
    lines = [",".join([f"i{row}", *map(repr, values)]) for row, values in enumerate(PROBS.tolist())]
    Path("probs.csv").write_text("image,a,b,c,d\n" + "\n".join(lines) + "\n")
    texts = {
        "y.txt": "\n".join(map(str, CLASSES.tolist())) + "\n",
        "two.txt": "0\n1\n",
        "names.txt": "a\nb\nc\nd\n",
        "odd.txt": "a;b\nc\nd\ne\n",
        "twice.txt": "owl\nfox\nowl\n",
        "codes.txt": "250\n401\n428\n",
        "sets.txt": "0 2\n\n",
        "none.txt": "",
        "repeated.txt": "0 1\n2 2\n",
        "large.txt": "0 1\n\n3\n",
        "negative.txt": "0 -1\n",
        "word.txt": "0 owl\n",
        "half.txt": "0 1.5\n",
        "list.yaml": "[1, 2]\n",
        "open.yaml": "epochs: [\n",
        "unknown.yaml": "epochs: 1\nzzz: 3\n",
        "many.yaml": "epochs: many\n",
        "five.yaml": "encoder_options: 5\n",
    }
    for name, content in texts.items():
        Path(name).write_text(content)
    Path("bytes.txt").write_bytes(b"\xff\xfe\x00")
    Path("folder").mkdir()
    AverageK(1.5).fit(LOGITS, from_logits=True).save("logits.json")
    AverageK(1.5).fit(PROBS, from_logits=False).save("probs.json")
    AverageError(0.2).fit(LOGITS, CLASSES, from_logits=True).save("error.json")


def write_data_files() -> None:
    """Data that models refuse, to be trained on or to be scored."""
    Path("empty.csv").write_text("")
    Path("header.csv").write_text("a,b,c,d,species,part\n")
    write_table("unlabeled.csv")
    write_table("three.csv", VALUES[:, :3])
    write_table("one.csv", species=["only"] * len(NAMES), part=PARTS)
    write_table("no-test.csv", species=NAMES, part=[part if part == "train" else f"my {part}" for part in PARTS])
    write_table("hole.csv", VALUES[:9], species=[*NAMES[:4], "", *NAMES[5:9]])
    write_table("dev.csv", VALUES[:9], species=NAMES[:9], part=["early", "late", "late"] * 3)
    for name, value, row in (("nan", np.nan, EARLY_ROW), ("inf", np.inf, TEST_ROW)):
        wrong = VALUES.copy()
        wrong[row, 1] = value
        write_table(f"{name}.csv", wrong, species=NAMES, part=PARTS)
        np.save(f"{name}-features.npy", wrong)
        np.savez(
            f"{name}.npz",
            x=wrong,
            y=DATA.targets.numpy(),
            split=DATA.split.index.numpy(),
            label_names=np.array(DATA.label_names),
        )
    np.save("five.npy", np.zeros((4, 5), dtype=np.float32))
    np.save("no-rows.npy", VALUES[:0])
    np.savez("words.npz", x=np.array([["a", "b"]]))
    Path("list.jsonl").write_text('{"a": 1, "b": 2, "c": 3, "d": 4}\n{"a": 1, "b": 2, "d": 4, "c": null}\n')
    Path("some.txt").write_text("a\n")
    image = Path("photos/owl/1.png").read_bytes()
    for name in ("broken", "nothing", "cut"):
        Path(name).mkdir()
    Path("broken/1.png").write_bytes(image)
    Path("broken/2.png").write_bytes(image[:45])
    for file in Path("parts").glob("*.*"):
        Path("cut", file.name).write_bytes(file.read_bytes()[: 300 if file.suffix == ".safetensors" else None])


PREDICT = [
    ("none.npy --logits --rule logits.json", "`none.npy` does not exist."),
    ("logits.npy --logits", "--rule must name the JSON of `shortlist calibrate`."),
    ("logits.npy --rule logits.json", "either --logits or --probabilities must say what the scores are."),
    ("logits.npy --logits --rule none.json", "`none.json` cannot be read: No such file or directory."),
    ("logits.npy --logits --rule names.txt", "`names.txt` cannot be read: "),
    ("wide.npy --logits --rule logits.json", "`logits.json` is for 4 labels, but `wide.npy` has 5."),
    (
        "probs.csv --probabilities --rule probs.json",
        "`probs.json` is for 4 labels, but `probs.csv` has 5 (is the column 'image' one of ids?).",
    ),
    (
        "logits.npy --logits --rule probs.json",
        "`probs.json` was calibrated on probabilities, but `logits.npy` holds logits.",
    ),
    ("logits.npy --logits --rule logits.json -o sets.txt", "`sets.txt` must end in .jsonl, .parquet or .csv, or "),
    ("logits.npy --logits --rule logits.json --output-format parquet -o -", "--output-format parquet needs a file:"),
    ("logits.npy --logits --rule logits.json --resume -o -", "--resume needs a file to resume: --output must name"),
    ("logits.npy --logits --rule logits.json --resume", "`sets.jsonl` cannot be resumed: there is no partial output."),
    ("logits.npy --logits --rule logits.json -o logits.json --output-format csv", "`logits.json` is read by this"),
    ("logits.npy --logits --rule logits.json --json -o -", "--json prints a summary on standard output"),
    (
        "logits.npy --logits --rule logits.json --seed -1",
        "argument --seed: must be at least 0 and below 9",
    ),
    ("logits.npy --logits --rule logits.json --names two.txt", "`two.txt` must name each of the 4 labels of `logits"),
    ("logits.npy --logits --rule logits.json --names odd.txt -o sets.csv", "label names must not hold ';', which"),
    ("logits.npy --logits --rule logits.json --data x.csv", "--data is for models, but `logits.npy` is not a folder"),
    ("folder --rule logits.json", "`folder` is a model: --data or --text must name the data to score."),
    ("folder --data x.csv --logits", "--logits is for files of scores, but `folder` is a model."),
    ("folder --data x.csv", "`folder/model.json` cannot be read: No such file or directory."),
    ("parts --data empty.csv", "`empty.csv` is empty."),
    ("parts --data header.csv", "`header.csv` holds no rows."),
    ("parts --data three.csv", "`three.csv`: has no column 'd' for `features`; it has 'a', 'b', 'c'."),
    ("parts --data nan.csv", f"`nan.csv` line {EARLY_ROW + 2}: 'b' must be a finite number; got 'nan'."),
    ("parts --data nan-features.npy", f"`nan-features.npy` row {EARLY_ROW}: features must be finite; got nan."),
    ("parts --data nan.npz", f"`nan.npz` row {EARLY_ROW}: features must be finite; got nan."),
    ("parts --data five.npy", "`five.npy` must have features of shape (4,); got features (5,)."),
    ("parts --data no-rows.npy", "`no-rows.npy` holds no rows."),
    ("parts --data words.npz", "`words.npz` 'x' must hold numbers"),
    ("parts --data list.jsonl", "`list.jsonl` line 2: 'c' must be a finite number; got None."),
    ("parts --data none.csv", "`none.csv` does not exist."),
    ("parts --data some.txt", "`some.txt` has no known format; "),
    ("parts --data photos", "`photos/daisy/0.png`: the model takes features; these are images."),
    ("parts --data parts.csv --part none", "`parts.csv` has no part 'none'; it has train, val, test."),
    ("parts --data plain.csv --part test", "`plain.csv` has no parts, so none is called 'test': leave out"),
    ("parts --data parts.csv --part test --id a", "rows of the part 'test' are numbered; leave out the id column 'a'."),
    ("parts --data parts.csv --reader {zzz:", "--reader is not YAML: "),
    ("parts --data parts.csv --reader 5", "--reader must be NAME=VALUE, or an object like '{name: value}'; got '5'."),
    ("parts --data parts.csv --reader '{zzz: 1}'", "reader options must be among text, features, "),
    ("parts --data parts.csv --reader '{features: 5}'", "reader option `features` must be a text or a list, "),
    ("parts --data parts.csv --format zzz", "`format` must be one of cifar, "),
    ("texts --data parts.csv", "`parts.csv`: has no column 'words' for `text`; it has "),
    ("texts --data some.txt --reader {size:1}", "reader options must be among encoding; got 'size:1'."),
    ("photos-model --data broken", "`broken/2.png` cannot be read as an image: "),
    ("photos-model --data nothing", "`nothing` has no known format; "),
    ("photos-model --data parts.csv", "`parts.csv` is a table, but the model takes images."),
]
EVALUATE = [
    ("logits.npy none.csv --logits", "`none.csv` does not exist."),
    ("logits.npy --logits", "LABELS must be given: the true labels of the rows of `logits.npy`."),
    ("logits.npy classes.npy", "either --logits or --probabilities must say what the scores are."),
    ("logits.npy classes.npy --logits --k 5", "--k must lie in [1, 4], the number of labels; got 5."),
    ("logits.npy classes.npy --logits --k 0", "--k must lie in [1, 4], the number of labels; got 0."),
    (
        "logits.npy classes.npy --logits --threshold 0.4",
        "a threshold applies to sets of labels, and these rows",
    ),
    ("logits.npy hot.npy --logits --threshold nan", "the threshold must be finite; got nan."),
    ("logits.npy hot.npy --logits --one-class", "`hot.npy` row 0: exactly one label must be positive; got 0."),
    ("logits.npy classes.npy --probabilities", "`logits.npy` row 0: probabilities must lie in [0, 1]; that of label"),
    (
        "probs.npy classes.npy --probabilities --rule error.json",
        "`error.json` was calibrated on logits, but",
    ),
    ("folder y.txt --data x.csv", "LABELS is for files of scores, but `folder` is a model."),
    ("parts --data header.csv", "`header.csv` holds no rows."),
    ("parts --data unlabeled.csv", "`unlabeled.csv`: has no column 'species' for `label`; it has "),
    ("parts --data hole.csv", "`hole.csv` line 6: 'species' must name a class; got an empty cell: such rows can be "),
    ("parts --data dev.csv", "`dev.csv` has no part test: choose one of early, late."),
    ("arrays --data inf.npz", f"`inf.npz` row {TEST_ROW}: features must be finite; got inf."),
    ("parts --data parts.csv --rule none.json", "`none.json` cannot be read: No such file or directory."),
    ("parts --data parts.csv --threshold 0.4", "a threshold applies to sets of labels, and these rows have one class"),
    ("parts --data parts.csv --id a", "--id is for files of scores, but `parts` is a model."),
    ("cut --data parts.csv", "`cut/model.safetensors` "),
]
CALIBRATE = [
    ("logits.npy --rule top-k --k 2", "either --logits or --probabilities must say what the scores are."),
    ("logits.npy --logits --rule best", "argument --rule: invalid choice: 'best'"),
    ("logits.npy --logits --rule top-k", "--rule top-k needs --k."),
    ("logits.npy --logits --rule average-k --k inf", "k must be at most the number of labels, 4; got inf."),
    ("logits.npy --logits --rule top-k --k 2.5", "`k` must be an integer, at least 1; got 2.5."),
    ("logits.npy --logits --rule average-k --k nan", "`k` must be finite and at least 0; got nan."),
    ("logits.npy --logits --rule top-k --k 2 --alpha 0.1", "--alpha does not apply to --rule top-k, which takes --k."),
    (
        "logits.npy y.txt --logits --rule average-error --alpha 0.1 --deterministic",
        "--deterministic does not apply to --rule average-error, which takes --alpha.",
    ),
    ("logits.npy --logits --rule average-error --alpha 0.1", "--rule average-error is fitted on true labels: LABELS"),
    ("logits.npy --logits --rule top-k --k 2 --labels-key y", "--labels-key names an array of LABELS, which are not"),
    ("probs.npy --probabilities --rule top-k --k 2 --link softmax", "--link turns logits into probabilities, but"),
    ("logits.npy absent.npy --logits --rule recall-control --alpha 0.1", "`labels` must have at least one positive"),
    ("logits.npy --logits --rule top-k --k 2 -o folder", "`folder` cannot be written: it is a folder."),
    (
        "logits.npy --logits --rule top-k --k 2 --min-size 9",
        "`min_size` must be at most the number of labels",
    ),
    ("logits.npy --logits --rule top-k --k 2 --min-size -1", "argument --min-size: must be at least 0; got -1"),
]
AUDIT = [
    ("missing.npz sets.txt", "`missing.npz` is not a file."),
    ("layer.safetensors missing.txt", "`missing.txt` is not a file."),
    ("sets.txt sets.txt", "`sets.txt` must end in .safetensors, .npz or .npy."),
    ("scalar.npy sets.txt", "`scalar.npy` must hold a matrix; got shape ()."),
    ("layer.npz sets.txt --key x", "`layer.npz` has no array 'x'; it holds other, weight."),
    ("layer.npz sets.txt", "`layer.npz` must hold "),
    ("layer.safetensors sets.txt --dft 0", "`dft` "),
    ("layer.safetensors sets.txt --jobs 0", "argument --jobs: must not be 0"),
    ("layer.safetensors sets.txt --cluster dask", "`cluster` must be local, dask://HOST:PORT or ray://"),
    ("layer.safetensors sets.txt --cluster ray://127.0.0.1:1", "`ray://127.0.0.1:1` cannot be reached"),
    ("layer.safetensors", "audit needs WEIGHTS and LABELS, or --verify FILE"),
    (
        "layer.safetensors --verify logits.json",
        "--verify takes only a saved report, which contains the layer and the sets.",
    ),
    ("--verify names.txt", "`names.txt` cannot be read"),
    ("--verify missing.json", "`missing.json` cannot be read"),
    ("layer.safetensors none.txt", "`none.txt` holds no label sets."),
    ("layer.safetensors repeated.txt", "`repeated.txt` line 2: labels must differ; 2 occurs twice."),
    ("layer.safetensors large.txt", "`large.txt` line 3: labels must lie in [0, 2]; got 3."),
    ("layer.safetensors negative.txt", "`negative.txt` line 1: labels must lie in [0, 2]; got -1."),
    ("layer.safetensors word.txt", "`word.txt` line 1: 'owl' is not a label; names need a file of names."),
    ("layer.safetensors half.txt", "`half.txt` line 1: '1.5' is not a label; names need a file of names."),
    ("layer.safetensors bytes.txt", "`bytes.txt` is not text"),
    ("layer.safetensors sets.txt --names twice.txt", "`twice.txt` line 3 repeats the name of line 1: 'owl'."),
    ("layer.safetensors sets.txt --names codes.txt", "`sets.txt` line 1: '0' is not a label."),
    ("--frobnicate", "unrecognized arguments: --frobnicate"),
]
BENCH = [
    ("--rows 0", "argument --rows: must be at least 1; got 0"),
    ("--labels 1", "argument --labels: must be at least 2; got 1"),
    ("--rows many", "argument --rows: must be a whole number; got 'many'"),
    ("--k 0", "--k must lie in (0, 10000], the number of labels; got 0."),
    ("--k 11 --labels 10", "--k must lie in (0, 10], the number of labels; got 11."),
    ("--k nan", "--k must lie in (0, 10000], the number of labels; got nan."),
    ("--labels 1000000000000", "--rows 256 and --labels 1000000000000 need about "),
    ("--what zzz", "argument --what: invalid choice: 'zzz'"),
]
MEMORY = [
    ("--labels 9 --features 2 --loss hinge", "--loss must be one of "),
    ("--labels 9 --features 2 --loss bce --rows 0", "argument --rows: must be at least 1; got 0"),
    ("--labels 9 --features 2 --loss bce --dtype int8", "argument --dtype: invalid choice: 'int8'"),
    ("--labels 9 --features 2 --loss bce --optimizer lion", "argument --optimizer: invalid choice: 'lion'"),
    ("--labels 9 --features 2", "the following arguments are required: --loss"),
]
FIT = [
    ("", "the following arguments are required: DATA"),
    ("digits", "--output must name the folder for the model."),
    ("none.csv --output m", "`none.csv` does not exist."),
    ("none.csv", "`none.csv` does not exist."),
    ("digits --zzz 1 --output m", "unrecognized arguments: --zzz 1"),
    ("digits --epochs many --output m", "--epochs must be a whole number; got 'many'."),
    ("digits --epochs 1.5 --output m", "--epochs must be a whole number; got '1.5'."),
    ("digits --epochs 0 --output m", "`epochs` must be at least 1; got 0."),
    ("digits --reader 5 --output m", "--reader must be NAME=VALUE, or an object like '{name: value}'; got '5'."),
    ("digits --milestones [a] --output m", "--milestones must be a list, each a number; got '[a]'."),
    ("digits --reader.zzz 1 --output m", "reader options must be among val, test, seed; got 'zzz'."),
    (
        "digits --set epochs.a=1 --output m",
        "--set must look like NAME.KEY=VALUE with a NAME among reader, ",
    ),
    ("digits --loss.a 1 --output m", "--set must look like NAME.KEY=VALUE with a NAME among reader, "),
    ("digits --config missing.yaml --output m", "`missing.yaml`: No such file or directory."),
    ("digits --config list.yaml --output m", "`list.yaml` must hold options by name, such as 'epochs: 5'."),
    ("digits --config open.yaml --output m", "`open.yaml` is not YAML: while parsing a flow node"),
    ("digits --config unknown.yaml --output m", "`unknown.yaml`: 'zzz' is not an option; options are format, reader,"),
    ("digits --config many.yaml --output m", "`many.yaml`: epochs must be a whole number; got 'many'."),
    (
        "digits --config five.yaml --output m",
        "`five.yaml`: encoder_options must be an object like '{name",
    ),
    ("digits --output y.txt", "`y.txt` cannot be written: it is not a folder."),
    ("digits --output m --resume", "`m` holds no run to resume."),
    (f"parts.csv {TRAIN} --k 99", "`k` must lie in (0, 7], the number of labels; got 99"),
    (
        f"parts.csv {TRAIN} --loss_options '{{zzz: 1}}'",
        "`loss_options` of 'cross_entropy' must be among weight, reduction; got 'zzz'.",
    ),
    (f"parts.csv {TRAIN} --nodes 2", "MASTER_ADDR must be set in the environment with `nodes` 2: "),
    ("digits --encoder timm:zzz --output m", "`encoder` 'timm:zzz' needs timm: run `pip install timm`."),
    (f"nan.csv {TRAIN}", f"`nan.csv` line {EARLY_ROW + 2}: 'b' must be a finite number; got 'nan'."),
    ("inf.npz --k 2 --output m", f"`inf.npz` must have finite features; those of row {TEST_ROW} are not."),
    (f"one.csv {TRAIN}", "`one.csv` must have at least 2 labels; got 1."),
    (f"header.csv {TRAIN}", "`header.csv` holds no rows."),
    (f"no-test.csv {TRAIN}", "`no-test.csv` must have parts train and test, or none, so that they are drawn; it has "),
    ("hole.csv --reader '{label: species}' --output m", "`hole.csv` line 6: 'species' must name a class; got an empty"),
    ("parts.csv --reader '{label: [a]}' --output m", "reader option `label` must be a text or null; got ('a',)."),
    ("parts.csv --reader '{features: 5}' --output m", "reader option `features` must be a text or a list, each a text"),
    ("parts.csv --reader '{zzz: 1}' --output m", "reader options must be among text, features, "),
]
COMPARE = [
    ("digits", "--losses or --candidates must say what to compare."),
    ("digits --losses bce bce", "--losses must name each loss once; got bce bce."),
    ("digits --losses bce --seeds 0", "--seeds must be at least 1; got 0."),
    ("digits --losses bce --audit perhaps", "--audit must be true or false; got 'perhaps'."),
    ("digits --candidates.a 5", "--candidates a: options must be among recipe, loss, encoder, "),
    ("digits --candidates.a.k 5", "--candidates a: options must be among recipe, loss, encoder, "),
    ("digits --candidates.a.epochs 0", "--candidates a: `epochs` must be at least 1; got 0."),
    ("digits --losses bce --candidates.bce.epochs 2", "--candidates must have names of their own; 'bce' is one of"),
    ("digits --losses cross_entropy --target zzz", "--target must be one of "),
    ("digits --candidates '{a: {epochs: many}}'", "--candidates a: `epochs` must be an integer; got"),
    ("digits --candidates '{1: {}}'", "--candidates must be NAME=VALUE, or an object like '{name: value}'; got"),
    ("digits --losses lml_nll --jobs 0", "`jobs` must be at least 1; got 0."),
    ("digits --losses lml_nll --cluster dask://host", "`cluster` must be local, dask://HOST:PORT or ray://HOST:PORT"),
    ("digits --losses lml_nll zzz", "`loss` must be one of"),
    ("digits --losses lml_nll --k 99", "`k` must lie in (0, 10]"),
    ("digits --losses lml_nll --target average_size", "--target must be one of "),
    ("sets.npz --losses lml_nll focal --k 2", "`loss` 'focal' is for one class per row"),
]
OTHERS = [
    ("", "a COMMAND must be given; see `shortlist --help`."),
    ("frobnicate", "argument COMMAND: invalid choice: 'frobnicate'"),
    ("data", "the following arguments are required: inspect|formats; see `shortlist data --help`."),
    ("data inspect none.csv", "`none.csv` does not exist."),
    ("data inspect probs.csv --figure a.gif", "--figure must end in .png, .svg, .pdf; got 'a.gif'."),
    ("data inspect probs.csv --examples 61", "argument --examples: must be at least 0 and below 61; got 61"),
    ("data inspect probs.csv --format zzz", "`format` must be one of "),
    ("data inspect probs.csv --reader zzz=1", "reader options must be among text, features, "),
    ("data inspect probs.csv --reader text", "--reader must be NAME=VALUE, or an object like '{name: value}'; got"),
    ("report none", "`none` "),
    ("report folder", "`folder"),
]
TABLES = {
    "predict": PREDICT,
    "evaluate": EVALUATE,
    "calibrate": CALIBRATE,
    "audit": AUDIT,
    "bench": BENCH,
    "memory": MEMORY,
    "fit": FIT,
    "compare": COMPARE,
    "": OTHERS,
}
CASES = [(f"{command} {arguments}".strip(), start) for command, cases in TABLES.items() for arguments, start in cases]
ON_A_MODEL = ("audit", "calibrate --rule top-k --k 1", "doctor", "evaluate", "rules --k 1")
CASES += [
    (f"{command} parts --data parts.csv --part nowhere", "`parts.csv` has no part 'nowhere'; it has train, val, test.")
    for command in ON_A_MODEL
]


@pytest.mark.parametrize(("line", "sentence"), CASES, ids=[line for line, _ in CASES])
@pytest.mark.usefixtures("folder", "model_folder")
def test_a_mistake_is_one_sentence_before_any_work_and_nothing_is_written(monkeypatch, capsys, line, sentence):
    monkeypatch.setattr(SetClassifier, "training_step", None)
    monkeypatch.setitem(sys.modules, "timm", None)
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    before = sorted(os.listdir())
    arguments = shlex.split(line)
    if arguments[:1] in (["predict"], ["calibrate"]) and "-o" not in arguments:
        arguments += ["-o", "sets.jsonl"]
    code = main(arguments)
    out, err = capsys.readouterr()
    assert (code, out) == (2, "")
    assert err.startswith(f"shortlist: {sentence}")
    said, *commands = err.splitlines()
    assert said.endswith(".")
    assert all(offered.startswith("  shortlist ") for offered in commands)
    assert sorted(os.listdir()) == before

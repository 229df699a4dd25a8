"""Reading a comparison: what is whole is taken as it is, what is not is refused with file and key."""

import json
import re

import pytest

from shortlist.report.comparison_document import comparison_file, read_comparison
from tests.report.comparisons import DOCUMENTS, document


def write(folder, content):
    path = folder / "comparison.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def change(content, key, value):
    """Set what stands under a key such as ``candidates.lml.runs.0.sets``; delete it for ``...``."""
    *way, last = [int(part) if part.isdigit() else part for part in key.split("/")]
    inside = content
    for part in way:
        inside = inside[part]
    if value is ...:
        del inside[last]
    else:
        inside[last] = value
    return content


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_whole_document_is_read_from_its_folder_and_by_its_name(name, tmp_path):
    made = DOCUMENTS[name]()
    path = write(tmp_path, made)
    assert read_comparison(tmp_path) == read_comparison(path) == json.loads(json.dumps(made))


def test_more_keys_than_are_used_do_no_harm(tmp_path):
    write(tmp_path, {**document(), "later": [1, 2, 3]})
    assert read_comparison(tmp_path)["later"] == [1, 2, 3]


def test_a_folder_without_a_document_says_what_would_write_one(tmp_path):
    with pytest.raises(ValueError, match=r"holds no comparison\.json; `shortlist compare --output .*` writes one\.$"):
        comparison_file(tmp_path)


def test_a_path_that_is_not_there_is_told(tmp_path):
    with pytest.raises(ValueError, match=r"`.*nowhere` is not there\.$"):
        read_comparison(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "cannot be read"),
        ("{", "cannot be read"),
        ("[1, 2]", "is not a shortlist comparison"),
        ({"format": "shortlist audit", "version": 2}, "is not a shortlist comparison"),
        ({**document(), "version": 1}, "has version 1; this release reads 2"),
    ],
)
def test_what_is_no_comparison_is_refused(content, message, tmp_path):
    path = write(tmp_path, content)
    with pytest.raises(ValueError, match=message) as caught:
        read_comparison(tmp_path)
    assert str(path) in str(caught.value)


RUN = "candidates/lml/runs/0"
DAMAGES = [
    ("made", ..., "made is missing."),
    ("made/torch", None, "made.torch must be text; got null."),
    ("data", [], "data must be an object; got a list."),
    ("data/task", "ranking", "data.task must be one of one class, sets; got 'ranking'."),
    ("data/labels", -1, "data.labels must be a whole number from 0; got -1."),
    ("data/evaluated", "holdout", "data.evaluated names 'holdout', which is not among train, val, test."),
    ("k", 0, "k must be above 0; got 0."),
    ("k", 4, "ks must hold k, 4."),
    ("k", "3", "k must be a finite number; got '3'."),
    ("k", True, "k must be a finite number; got true."),
    ("ks", [], "ks must have at least 1 entry."),
    ("ks", [3, 2, 1, 5], "ks must rise from entry to entry."),
    ("target", "speed", "target names 'speed', which is not among average3_error, top1_error, average_size."),
    ("figures/0/better", "more", "figures[0].better must be one of lower, higher, null; got 'more'."),
    ("best/average3_error", ["nobody"], "best.average3_error names 'nobody', which is not among cross_entropy, lml."),
    ("best/average3_error", ..., "best.average3_error is missing."),
    ("candidates", {}, "candidates must have at least 1 entry."),
    ("candidates/lml/runs", [], "candidates.lml.runs must have at least 1 entry."),
    ("candidates/lml/intervals/top1_error", ..., "candidates.lml.intervals.top1_error is missing."),
    (
        f"{RUN}/sets/curves/sizes/0",
        "1",
        "candidates.lml.runs[0].sets.curves.sizes[0] must be a finite number; got '1'.",
    ),
    (f"{RUN}/sets/by_k/3", ..., "candidates.lml.runs[0].sets.by_k must be as long as ks, 4; got 3."),
    (f"{RUN}/sets/by_k/0/error", 7, "candidates.lml.runs[0].sets.by_k[0].error must lie in [0, 1]; got 7."),
    (f"{RUN}/sets/classes/count", [1], "candidates.lml.runs[0].sets.classes.count must have one entry for each of 6"),
    (
        "examples/0/input",
        {"kind": "sound"},
        "examples[0].input.kind must be one of text, image, features; got 'sound'.",
    ),
    ("examples/0/input", {"kind": "text"}, "examples[0].input.text is missing."),
    ("examples/0/answers/lml/sizes", [1], "examples[0].answers.lml.sizes must be as long as ks, 4; got 1."),
    ("examples/0/answers/lml/scores", [1], "examples[0].answers.lml.scores must be as long as labels, 5; got 1."),
]


@pytest.mark.parametrize(("key", "value", "message"), DAMAGES, ids=[f"{key} {value}" for key, value, _ in DAMAGES])
def test_a_damaged_document_is_refused_with_file_and_key(key, value, message, tmp_path):
    path = write(tmp_path, change(json.loads(json.dumps(document())), key, value))
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        read_comparison(tmp_path)
    text = str(caught.value)
    assert text.startswith(f"`{path}` is damaged: ")
    assert text.endswith(".")
    assert "\n" not in text


@pytest.mark.parametrize("number", ["NaN", "Infinity", "1e999", "1" * 400])
def test_numbers_that_are_not_finite_are_refused(number, tmp_path):
    text = json.dumps(document()).replace('"labels_per_row": 1.0', f'"labels_per_row": {number}')
    write(tmp_path, text)
    with pytest.raises(ValueError, match=r"data\.labels_per_row must be a finite number"):
        read_comparison(tmp_path)

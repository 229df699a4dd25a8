"""The document of a comparison: a complete one survives reading and writing, a damaged one is refused with its path."""

import json
import re
from dataclasses import replace

import pytest

from shortlist.comparison_document import ComparisonDocument, comparison_file, read_comparison, write_comparison
from shortlist.errors import InputError
from tests.report.comparisons import DOCUMENTS, document


def write(folder, content):
    path = folder / "comparison.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def change(content, key, value):
    """Set the value at a path such as ``candidates/lml/runs/0``; delete it for ``...``."""
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
    read = read_comparison(tmp_path)
    assert read == read_comparison(path)
    assert read.to_json() == json.loads(json.dumps(made))


def test_writing_replaces_the_file_as_a_whole_or_not_at_all(tmp_path):
    read = ComparisonDocument.from_json(document())
    path = write_comparison(read, tmp_path / "new")
    assert path == tmp_path / "new" / "comparison.json"
    with pytest.raises(ValueError, match="JSON"):
        write_comparison(replace(read, k=float("nan")), tmp_path / "new")
    assert read_comparison(path) == read
    assert list(path.parent.iterdir()) == [path]


def test_unknown_keys_are_ignored_and_optional_ones_may_be_absent(tmp_path):
    content = {**document(audit=True), "later": [1, 2, 3]}
    del content["made"]["threads"], content["candidates"]["lml"]["audit"]["seconds"]
    del content["candidates"]["lml"]["recipe"], content["candidates"]["lml"]["tuning"]
    write(tmp_path, content)
    assert read_comparison(tmp_path).made.threads is None
    assert read_comparison(tmp_path).candidates["lml"].recipe is None


def test_dicts_and_their_keys_are_still_taken_with_a_warning(tmp_path):
    with pytest.warns(DeprecationWarning, match="Pass a `ComparisonDocument`"):
        path = write_comparison(document(), tmp_path)
    with pytest.warns(DeprecationWarning, match="Use the attribute `metrics`"):
        assert read_comparison(path)["figures"][0].name == "average3_error"


def test_a_folder_without_a_document_names_the_command_that_writes_one(tmp_path):
    with pytest.raises(InputError, match=r"holds no comparison\.json; `shortlist compare --output .*` writes one\.$"):
        comparison_file(tmp_path)


def test_a_missing_path_is_reported(tmp_path):
    with pytest.raises(InputError, match=r"`.*nowhere` does not exist\.$"):
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
def test_other_files_are_refused(content, message, tmp_path):
    path = write(tmp_path, content)
    with pytest.raises(InputError, match=message) as caught:
        read_comparison(tmp_path)
    assert str(path) in str(caught.value)


RUN = "candidates/lml/runs/0"
DAMAGES = [
    ("made", ..., "made is missing."),
    ("made/torch", None, "made.torch must be text; got null."),
    ("data", [], "data must be an object; got a list."),
    ("data/task", "ranking", "data.task must be one of one class, sets; got 'ranking'."),
    ("data/labels", -1, "data.labels must be at least 0; got -1."),
    ("data/evaluated", "holdout", "data.evaluated names 'holdout', which is not among train, val, test."),
    ("k", 0, "k must be above 0; got 0."),
    ("k", 4, "ks must contain k, 4."),
    ("k", "3", "k must be a finite number; got '3'."),
    ("k", True, "k must be a finite number; got true."),
    ("ks", [], "ks must have at least 1 entry."),
    ("ks", [3, 2, 1, 5], "ks must be ascending."),
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
def test_a_damaged_document_is_refused_with_file_and_path(key, value, message, tmp_path):
    path = write(tmp_path, change(json.loads(json.dumps(document())), key, value))
    with pytest.raises(InputError, match=re.escape(message)) as caught:
        read_comparison(tmp_path)
    text = str(caught.value)
    assert text.startswith(f"`{path}` is damaged: ")
    assert text.endswith(".")
    assert "\n" not in text


@pytest.mark.parametrize("number", ["NaN", "Infinity", "1e999", "1" * 400])
def test_non_finite_numbers_are_refused(number, tmp_path):
    text = json.dumps(document()).replace('"labels_per_row": 1.0', f'"labels_per_row": {number}')
    write(tmp_path, text)
    with pytest.raises(InputError, match=r"data\.labels_per_row must be a finite number"):
        read_comparison(tmp_path)

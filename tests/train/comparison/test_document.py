"""The document of a comparison holds its results, examples and optimum."""

import base64
import json
import struct
import zlib

import numpy as np
import pytest
import torch

from shortlist.comparison_document import Answer, ComparisonDocument, TextInput
from shortlist.data import AmbiguousWorld, Dataset, ImageArray
from shortlist.train import compare, comparison_document
from shortlist.train.comparison.examples import example_rows, picked_examples, shown_input
from tests.train.small_data import classes, images, label_sets, quick, sparse, texts


def document_of(data, ways, *, target: str, **options):
    found = compare(data, ways, seeds=[0, 1])
    return comparison_document(found, data, target=target, **options), found


def test_a_document_holds_the_figures_of_the_comparison():
    ways = {"plain": quick(), "fast": quick(learning_rate=0.05)}
    document, found = document_of(classes(), ways, target="top2_error", commands=["do it"], seconds=1.25)
    read = json.loads(json.dumps(document.to_json(), allow_nan=False))
    assert ComparisonDocument.from_json(read) == document
    assert [each.name for each in document.metrics] == [
        "average2_error", "top2_error", "top1_error", "average_size",
    ]  # fmt: skip
    assert document.best["top2_error"] == found.best("top2_error")
    assert "average_size" not in document.best
    assert len(document.standings) == len(document.ks)
    standing = document.standings[document.ks.index(document.k)]
    assert standing.metric == "top2_error"
    assert [standing.best, *(tie.name for tie in standing.ties)] == document.best["top2_error"]
    assert document.standings[0].metric == "top1_error"
    errors = [run.sets.by_k[0].top_error for run in document.candidates[document.standings[0].best].runs]
    assert document.standings[0].value.mean == pytest.approx(sum(errors) / 2)
    for name in ways:
        candidate = document.candidates[name]
        assert candidate.intervals["top1_error"].mean == found.interval(name, "top1_error").mean
        assert [run.values for run in candidate.runs] == [found.runs[name][seed] for seed in (0, 1)]
        assert len(candidate.runs[0].sets.by_k) == len(document.ks)
        assert candidate.audit is None
    assert document.data.parts == dict(zip(classes().split.names, classes().split.counts().tolist(), strict=True))
    assert sum(shot.rows for shot in document.data.shots) == document.data.parts["test"]
    assert (document.commands, document.made.seconds, document.optimum) == (["do it"], 1.2, None)


def test_examples_are_rows_of_the_evaluated_part_with_their_labels():
    data = label_sets()
    document, _ = document_of(data, {"bce": quick(loss="bce")}, target="map")
    rows = data.part("test")
    assert len(document.examples) >= 6
    assert len({example.row for example in document.examples}) == len(document.examples)
    for example in document.examples:
        assert tuple(example.truth) == rows[example.row].labels
        answer = example.answers["bce"]
        assert len(answer.sizes) == len(document.ks)
        assert answer.scores == sorted(answer.scores, reverse=True)
        assert example.rarest == min(data.label_counts("train")[data.label_names.index(name)] for name in example.truth)


def test_examples_of_every_kind_are_picked():
    data = label_sets()
    positions = example_rows(len(data.part("test"))).tolist()
    names = list(data.label_names)
    right = [Answer(names, [None] * len(names), [len(names)]) for _ in positions]
    wrong = list(right)
    for index, size in ((20, 0), (30, 1)):  # An empty set, and one that misses.
        wrong[index] = Answer(names, [None] * len(names), [size])
    picked = {example.row for example in picked_examples({"a": right, "b": wrong}, data, "test", at_k=0)}
    assert {positions[20], positions[30]} <= picked
    assert set(positions[:6]) <= picked


def test_large_images_become_thumbnails():
    photo = np.random.default_rng(0).integers(0, 256, (1, 300, 200, 3), dtype=np.uint8)
    data = Dataset(ImageArray(photo), torch.tensor([0]), ("a",))
    shown = base64.b64decode(shown_input(data, 0).png)
    assert struct.unpack(">II", shown[16:24]) == (96, 144)  # Width and height in the header of a PNG.


def test_the_optimum_is_measured_like_a_model_and_no_model_is_far_below_it():
    world = AmbiguousWorld(4, (2, 4))
    data, ways = world.sample(3000, seed=0), {"plain": quick()}
    document, _ = document_of(data, ways, target="top1_error", exact=lambda x: world.probabilities(x.double()))
    least = document.optimum.values
    assert least.keys() == document.candidates["plain"].intervals.keys()
    assert least["average2_error"] < document.candidates["plain"].intervals["average2_error"].mean
    assert least["average2_error"] == pytest.approx(world.average_k_risk(2).value, abs=0.05)
    assert document.optimum.sets.calibration.error < 0.3


def test_inputs_are_shown_as_what_they_are():
    assert shown_input(texts(), 3) == TextInput(texts().inputs.batch(torch.tensor([3]))[0])
    assert len(shown_input(sparse(), 0).values) <= 256
    picture = base64.b64decode(shown_input(images(), 1).png)
    assert picture.startswith(b"\x89PNG")
    assert zlib.decompress(picture[picture.index(b"IDAT") + 4 : -16])

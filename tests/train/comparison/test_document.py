"""The document of a comparison holds its results, examples and optimum."""

import base64
import json
import zlib

import pytest
import torch

from shortlist.comparison_document import ComparisonDocument, TextInput
from shortlist.data import AmbiguousWorld
from shortlist.train import compare, comparison_document
from shortlist.train.comparison.document import shown_input
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
    assert len(document.examples) == 6
    for example in document.examples:
        assert tuple(example.truth) == rows[example.row].labels
        answer = example.answers["bce"]
        assert len(answer.sizes) == len(document.ks)
        assert answer.scores == sorted(answer.scores, reverse=True)


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

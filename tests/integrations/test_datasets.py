"""Datasets of Hugging Face are read by the types of their columns."""

import datasets
import numpy as np
import pytest
import torch

from shortlist.integrations.datasets import read_datasets
from shortlist.train import FitOptions, fit

TEXTS = ["a red rose", "a daisy", "a blue violet", "one rose"]


def test_splits_become_parts_and_class_labels_keep_their_names():
    features = datasets.Features({"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["no", "yes"])})
    rows = datasets.Dataset.from_dict({"text": TEXTS, "label": [0, 1, 1, 0]}, features=features)
    parts = datasets.DatasetDict({"train": rows, "validation": rows.select([2]), "test": rows.select([1, 3])})
    found = read_datasets(parts, inputs="text", labels="label")
    assert found.label_names == ("no", "yes")
    assert {part: len(found.part(part)) for part in ("train", "val", "test")} == {"train": 4, "val": 1, "test": 2}
    assert found.part("test").targets.tolist() == [1, 0]
    assert found.part("val").inputs.batch(torch.tensor([0])) == ["a blue violet"]


@pytest.mark.parametrize(
    ("labels", "feature", "names"),
    [
        ([["x", "y"], [], ["y"], ["x"]], datasets.Value("string"), ("x", "y")),
        ([[0, 2], [], [2], [0]], datasets.ClassLabel(names=["x", "other", "y"]), ("x", "other", "y")),
        ([[0, 2], [], [2], [0]], datasets.Value("int64"), ("0", "1", "2")),
    ],
    ids=["text", "class labels", "numbers"],
)
def test_lists_are_sets(labels, feature, names):
    features = datasets.Features({"text": datasets.Value("string"), "tags": datasets.List(feature)})
    rows = datasets.Dataset.from_dict({"text": TEXTS, "tags": labels}, features=features)
    found = read_datasets(rows, inputs="text", labels="tags")
    assert found.label_names == names
    first, last = names[0], names[-1]
    assert [found[row].labels for row in range(4)] == [(first, last), (), (last,), (first,)]


def test_numbers_and_images_are_read_and_trained_on():
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(40, 3))
    classes = [str(bool(value > 0)) for value in vectors[:, 0]]
    images = [np.full((8, 8 + row % 2, 3), row, dtype=np.uint8) for row in range(40)]
    rows = datasets.Dataset.from_dict(
        {"vector": vectors.tolist(), "image": images, "class": classes},
        features=datasets.Features(
            {
                "vector": datasets.List(datasets.Value("float32")),
                "image": datasets.Image(),
                "class": datasets.Value("string"),
            }
        ),
    )
    parts = rows.train_test_split(0.5, seed=0)
    parts["validation"] = parts["test"]
    found = read_datasets(parts, inputs="vector", labels="class")
    fitted = fit(found, FitOptions(k=1, epochs=1))
    assert fitted.label_names == ("False", "True")
    pictures = read_datasets(rows, inputs="image", labels="class", resolution=4)
    assert pictures.inputs.batch(torch.tensor([7])).tolist() == torch.full((1, 3, 4, 4), 7).tolist()
    with pytest.raises(ValueError, match=r"^`resolution` must be given: the images of 'image' have 2 sizes\.$"):
        read_datasets(rows, inputs="image", labels="class")


def test_other_columns_are_refused_in_one_sentence():
    rows = datasets.Dataset.from_dict({"text": TEXTS, "weight": [0.5, 1.0, 2.0, 3.0], "label": [0, 1, None, 1]})
    cases = {
        ("txt", "label"): "`inputs` must be one of text, weight, label; got 'txt'.",
        ("weight", "label"): "`labels` must have a label in every row; 'label' has rows without one.",
        ("text", "weight"): "`labels` must be a column of classes, or of lists of them; 'weight' is none.",
    }
    for (inputs, labels), message in cases.items():
        with pytest.raises(ValueError, match=r"column|must") as refused:
            read_datasets(rows, inputs=inputs, labels=labels)
        assert str(refused.value) == message
    with pytest.raises(ValueError, match=r"^`inputs` must be a column of texts, .*; 'weight' is none\.$"):
        read_datasets(rows.remove_columns("label").add_column("label", [0, 1, 0, 1]), inputs="weight", labels="label")

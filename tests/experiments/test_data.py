"""The loaders of the experiments: files of the described shape become datasets with all three parts."""

import pytest
import torch

from experiments.data import LOADERS, open_data
from shortlist.data.target_rows import label_pairs
from tests.experiments.small_data import MULAN, write_data


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return write_data(tmp_path_factory.mktemp("data"))


def described() -> list[dict]:
    plain = [{"loader": name} for name in LOADERS if name != "mulan"]
    return plain + [{"loader": "mulan", "name": name} for name in MULAN]


@pytest.mark.parametrize("data", described(), ids=lambda data: data.get("name", data["loader"]))
def test_every_loader_gives_rows_to_train_to_choose_and_to_test(root, data):
    dataset = open_data(data, root, seed=0)
    assert all(len(dataset.part_rows(part)) for part in ("train", "val", "test"))
    assert dataset.num_labels > 1
    other = open_data(data, root, seed=1)
    assert torch.equal(dataset.part_rows("test"), other.part_rows("test"))


def test_difficult_labels_are_unknown(root):
    dataset = open_data({"loader": "voc2012_features"}, root, seed=0)
    _, _, present = label_pairs(dataset.targets, dataset.num_labels)
    assert not present.all()


def test_packages_of_one_source_stay_together(root):
    dataset = open_data({"loader": "debtags", "min_count": 1}, root, seed=0)
    sources = dataset.row_groups["source"].index
    assert not set(sources[dataset.part_rows("train")].tolist()) & set(sources[dataset.part_rows("test")].tolist())


def test_sparse_features_may_stay_sparse(root):
    data = {"loader": "mulan", "name": "bibtex"}
    dense, sparse = (open_data({**data, "dense": dense}, root, seed=0) for dense in (True, False))
    rows = torch.arange(5)
    assert sparse.inputs.kind == "sparse features"
    assert torch.equal(dense.inputs.batch(rows), sparse.inputs.batch(rows).to_dense())


def test_an_unknown_loader_is_named(root):
    with pytest.raises(ValueError, match=r"`loader` must be one of cifar100_features, .*; got 'cifar'"):
        open_data({"loader": "cifar"}, root, seed=0)

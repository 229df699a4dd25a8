"""From a dataset through batches, losses and metrics to a report, sparse labels stay sparse."""

import pytest
import torch
import torch.distributed as dist

from shortlist import nn
from shortlist.data import MultiLabelWorld
from shortlist.data.procedures.hidden_labels import hide_labels
from shortlist.targets import to_sparse
from shortlist.train import FitOptions, evaluate, fit
from shortlist.train.comparison.findings import fitted_rules, set_findings
from shortlist.train.distributed.global_batch import _divisor, gather_targets
from tests.labels.label_taint import LABELS, SCORES, only_few_labels

N, BATCH = 300, 64


@pytest.fixture(scope="module")
def dataset():
    data = MultiLabelWorld(num_labels=N, dim=8, missing=0.0).sample(320, seed=0)
    return hide_labels(data, 0.2, mark="unknown", seed=1)


@pytest.mark.parametrize("loss", ["bce", "two_way", "lml_nll"])
def test_training_and_evaluation_make_no_mask_of_the_labels(loss, dataset):
    with only_few_labels(BATCH * N) as taint:
        for target in (dataset.targets, dataset.clean_targets):
            taint.mark(LABELS, target, target.crow_indices(), target.col_indices(), target.values())
        taint.mark(SCORES, dataset.inputs.array)
        fitted = fit(dataset, FitOptions(loss=loss, epochs=1, batch_size=BATCH, k=3))
        found = evaluate(fitted, dataset)
        taint.mark(SCORES, found.logits, found.val_logits)
        parts = dataset.part("test"), dataset.part("val")
        set_findings(found, *parts, dataset.label_counts("train"), fitted_rules(found, [3]), k=3)
        assert taint.seen > 100


@pytest.mark.parametrize("form", ["class indices", "index lists", "sparse COO", "sparse CSR"])
def test_labels_of_all_processes_are_gathered_without_a_mask(form):
    lists = 3 * torch.arange(BATCH)[:, None] + torch.arange(5)
    layout = torch.sparse_csr if form == "sparse CSR" else torch.sparse_coo
    target = {"class indices": lists[:, 0], "index lists": lists}.get(form)
    target = to_sparse(lists, N, layout=layout) if target is None else target
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        with only_few_labels(BATCH * N) as taint:
            taint.mark(LABELS, target)
            gathered = gather_targets(target, N)
            _divisor(nn.BCE(), target, N)
            assert taint.seen
    finally:
        dist.destroy_process_group()
    assert gathered.shape == target.shape
    assert gathered.layout == (torch.strided if form in ("class indices", "index lists") else torch.sparse_csr)

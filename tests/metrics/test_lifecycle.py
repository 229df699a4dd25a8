"""What all metrics promise as torchmetrics: forward, pickling, saving, merging, moving, precision."""

import pickle
import warnings

import pytest
import torch
from torchmetrics import MetricCollection

from shortlist import metrics as M
from shortlist import tensors
from shortlist.functional.metrics import ranking, scored_labels
from shortlist.labels import reading
from tests.contracts_losses import FORMS
from tests.contracts_metrics import METRICS, N, draw, flat

each_metric = pytest.mark.parametrize("case", METRICS, ids=str)
SEED = 5


def batches(case, dtype=torch.float64):
    """Two batches with ties, in a precision."""
    scores, hot = draw(case, 9, SEED)
    return [(scores[:6].to(dtype), hot[:6]), (scores[6:].to(dtype), hot[6:])]


def filled(case, *which):
    metric = case.metric()
    for scores, hot in which:
        case.update(metric, scores, hot)
    return metric


def close(one, other):
    a, b = (torch.tensor(flat(metric.compute()), dtype=torch.float64) for metric in (one, other))
    return torch.allclose(a, b, rtol=1e-12, equal_nan=True)


@each_metric
def test_calling_a_metric_gives_the_value_of_the_batch_and_adds_it(case):
    first, second = batches(case)
    metric = case.metric()
    for scores, hot in (first, second):
        value = metric(*case.arguments(scores, hot))
        alone = torch.tensor(flat(filled(case, (scores, hot)).compute()))
        assert torch.allclose(torch.tensor(flat(value)), alone, equal_nan=True)
    assert close(metric, filled(case, first, second))


@each_metric
def test_a_metric_survives_pickling_and_copying_and_goes_on(case):
    first, second = batches(case)
    metric = filled(case, first)
    for twin in (pickle.loads(pickle.dumps(metric)), metric.clone()):
        case.update(twin, *second)
        assert close(twin, filled(case, first, second))
    assert close(metric, filled(case, first))


@each_metric
def test_a_saved_state_goes_on_elsewhere(case):
    first, second = batches(case)
    metric = filled(case, first)
    assert not metric.state_dict()  # only on demand
    metric.persistent(True)
    twin = case.metric()
    twin.persistent(True)
    twin.load_state_dict(metric.state_dict())
    case.update(twin, *second)
    assert close(twin, filled(case, first, second))


@each_metric
def test_metrics_merge(case):
    first, second = batches(case)
    metric = filled(case, first)
    metric.merge_state(filled(case, second))
    assert close(metric, filled(case, first, second))
    empty = case.metric()
    empty.merge_state(metric)
    metric.merge_state(case.metric())
    with warnings.catch_warnings():  # torchmetrics does not count a merge as an update
        warnings.simplefilter("ignore")
        assert close(empty, metric)


@each_metric
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
def test_precision_does_not_change_what_small_whole_numbers_say(case, dtype):
    metric = filled(case, *batches(case, dtype)).to("cpu")
    assert close(metric, filled(case, *batches(case)))


@each_metric
def test_an_update_that_fails_leaves_the_value_as_it_was(case):
    first, _ = batches(case)
    metric = filled(case, first)
    wanted = flat(metric.compute())
    with pytest.raises((ValueError, TypeError)):
        metric.update(*(torch.zeros(2, 3, 1) for _ in case.arguments(*first)))
    assert torch.equal(torch.tensor(flat(metric.compute())).isnan(), torch.tensor(wanted).isnan())
    assert torch.allclose(torch.tensor(flat(metric.compute())), torch.tensor(wanted), equal_nan=True)


@each_metric
def test_states_are_linear_in_the_number_of_labels(case):
    sizes = [state.numel() for state in case.metric().metric_state.values() if isinstance(state, torch.Tensor)]
    assert max(sizes) <= 16 * N


@pytest.mark.parametrize("case", [case for case in METRICS if case.takes_target], ids=str)
def test_all_forms_of_labels_say_the_same(case):
    scores, _ = draw(case, 9, SEED)
    hot = torch.zeros(9, N).index_put((torch.arange(9), torch.arange(9) % (N - 1)), torch.ones(()))
    if not case.one_class:
        hot[::2, N - 1] = 1
    wanted = filled(case, (scores, hot))
    for name in FORMS.keys() - ({} if case.one_class else {"class indices"}):
        assert close(filled(case, (scores, FORMS[name](hot))), wanted), name


@each_metric
def test_what_nothing_was_seen_of_is_nan(case):
    metric = case.metric()
    with pytest.warns(UserWarning, match="before the ``update`` method"):
        assert all(value != value for value in flat(metric.compute()))
    metric = filled(case, (torch.zeros(0, N), torch.zeros(0, N)))
    assert all(value != value for value in flat(metric.compute()))


def test_a_collection_computes_metrics_of_the_same_ks_once_and_no_others():
    collection = MetricCollection(
        {
            "p": M.PrecisionAtK((1, 2)),
            "r": M.RecallAtK((1, 2)),
            "f": M.F1AtK((1, 2)),
            "g": M.NDCGAtK((1, 2)),
            "other": M.NDCGAtK((1, 3)),
            "top1": M.TopKAccuracy(1),
            "top2": M.TopKAccuracy(2),
        }
    )
    perfect = torch.eye(3)
    collection.update(perfect, torch.arange(3))  # all of them are perfect at every k, so that their sums agree
    groups = sorted(sorted(group) for group in collection.compute_groups.values())
    assert groups == [["f", "g", "p", "r"], ["other"], ["top1"], ["top2"]]
    collection.update(perfect.roll(1, 0), torch.arange(3))
    values = collection.compute()
    assert values["top1"] == 0.5
    assert values["top2"] == 0.75
    assert torch.equal(values["p"], torch.tensor([0.5, 0.375], dtype=torch.float64))


@each_metric
def test_an_accelerator_whose_values_are_not_looked_at_says_the_same(case, monkeypatch):
    """There sorting is torch's, and nothing is checked that would wait for the device."""
    first, second = batches(case)
    wanted = filled(case, first, second)
    for module in (tensors, reading, scored_labels, ranking):
        monkeypatch.setattr(module, "may_look", lambda x: False)
    assert close(filled(case, first, second), wanted)

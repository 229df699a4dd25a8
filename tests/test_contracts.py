"""The lists of contracts.py and its neighbours are complete: an export that no shared test sees fails here."""

from types import ModuleType

import pytest

from shortlist import functional, metrics, nn
from tests import reference
from tests.contracts import (
    DFT,
    HEADS,
    HEADS_IN_PARTS,
    IN_PARTS,
    POTENTIAL_LOSSES,
    POTENTIALS,
    PROJECTIONS,
    PROTOCOLS,
    WITNESSES,
)
from tests.contracts_losses import BLOCKS, LOSSES, OPTIONS
from tests.contracts_metrics import FUNCTIONS, METRIC_RESULTS, METRICS, NOT_METRICS

NAMED = [(entry.op, entry.module) for entry in PROJECTIONS if entry.module]
NAMED += list({(entry.function, entry.module): None for entry in LOSSES})


def public_names(module: ModuleType) -> set[str]:
    return {
        name for name, value in vars(module).items() if not name.startswith("_") and not isinstance(value, ModuleType)
    }


@pytest.mark.parametrize("module", [functional, metrics, nn], ids=["functional", "metrics", "nn"])
def test_every_public_name_is_exported_in_order(module):
    assert set(module.__all__) == public_names(module)
    assert len(module.__all__) == len(set(module.__all__))


def test_every_export_of_functional_has_a_contract():
    listed = [str(entry) for entry in PROJECTIONS + POTENTIALS]
    listed += [entry.__name__ for entry in POTENTIAL_LOSSES + PROTOCOLS + BLOCKS + DFT + IN_PARTS + WITNESSES[:1]]
    listed += [entry.__name__ for entry in FUNCTIONS + METRIC_RESULTS]
    listed += {entry.function.__name__ for entry in LOSSES}
    assert sorted(listed) == sorted(functional.__all__)


def test_every_export_of_metrics_has_a_contract():
    listed = {type(entry.metric()).__name__ for entry in METRICS} | {entry.__name__ for entry in NOT_METRICS}
    assert sorted(listed) == sorted(metrics.__all__)


def test_every_export_of_nn_has_a_contract():
    listed = [module.__name__ for _, module in NAMED]
    listed += ["Loss", "LossMemory", "NoisedTopKImbalanced", "Task"]
    listed += {entry.module.__name__ for entry in HEADS} | {entry.__name__ for entry in HEADS_IN_PARTS + WITNESSES[1:]}
    assert sorted(listed) == sorted(nn.__all__)


def test_every_loss_and_every_block_has_a_reference_of_its_name():
    for function in [*(entry.function for entry in LOSSES), *BLOCKS]:
        assert callable(getattr(reference, function.__name__))
    for entry in LOSSES:
        assert entry.reference is getattr(reference, entry.function.__name__)


def test_options_are_listed_for_losses_that_exist():
    assert set(OPTIONS) <= {entry.function.__name__ for entry in LOSSES}


@pytest.mark.parametrize(("function", "module"), NAMED, ids=lambda item: item.__name__)
def test_a_module_is_named_for_its_function(function, module):
    assert module.__name__.lower() == function.__name__.replace("_", "")


@pytest.mark.parametrize("name", [*functional.__all__, *metrics.__all__, *nn.__all__])
def test_every_export_says_what_it_is(name):
    exported = getattr(functional, name, None) or getattr(metrics, name, None) or getattr(nn, name)
    assert exported.__doc__
    assert exported.__module__.startswith("shortlist.")

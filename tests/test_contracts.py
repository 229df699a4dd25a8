"""The lists of contracts are complete: an export that no shared test sees fails here."""

import inspect
from types import ModuleType

import pytest

from shortlist import functional, metrics, nn
from tests import contracts, reference
from tests.contracts import HEADS, POTENTIALS, PROJECTIONS
from tests.contracts_losses import BUILDING_BLOCKS, LOSSES, PRESETS
from tests.contracts_metrics import FUNCTIONS, METRIC_RESULTS, METRICS, NOT_METRICS

MODULES = {entry.op: entry.module for entry in PROJECTIONS if entry.module}
MODULES |= {entry.function: entry.module for entry in LOSSES}


def public_names(module: ModuleType) -> set[str]:
    return {
        name for name, value in vars(module).items() if not name.startswith("_") and not isinstance(value, ModuleType)
    }


@pytest.mark.parametrize("module", [functional, metrics, nn], ids=["functional", "metrics", "nn"])
def test_every_public_name_is_exported_once(module):
    assert sorted(module.__all__) == sorted(public_names(module))


@pytest.mark.parametrize("package", [functional, nn], ids=["functional", "nn"])
def test_a_package_exports_what_its_modules_export(package):
    """So a new function or module in a family file needs no edit of the package."""
    modules = [
        module
        for module in {inspect.getmodule(getattr(package, name)) for name in package.__all__}
        if module.__name__.startswith(package.__name__) and hasattr(module, "__all__")
    ]
    assert len(modules) > 5
    for module in modules:
        assert set(module.__all__) <= set(package.__all__), module.__name__


def test_every_export_of_functional_has_a_contract():
    listed = {str(entry) for entry in PROJECTIONS + POTENTIALS} | {entry.function.__name__ for entry in LOSSES}
    others = BUILDING_BLOCKS + FUNCTIONS + METRIC_RESULTS + contracts.FUNCTIONAL_EXTRAS
    assert sorted(listed | {entry.__name__ for entry in others}) == sorted(functional.__all__)


def test_every_export_of_metrics_has_a_contract():
    listed = {type(entry.metric()).__name__ for entry in METRICS} | {entry.__name__ for entry in NOT_METRICS}
    assert sorted(listed) == sorted(metrics.__all__)


def test_every_export_of_nn_has_a_contract():
    listed = [*MODULES.values(), *(entry.module for entry in HEADS), *PRESETS, *contracts.NN_EXTRAS]
    assert sorted({module.__name__ for module in listed}) == sorted(nn.__all__)


def test_every_building_block_has_a_reference_of_its_name():
    assert all(callable(getattr(reference, function.__name__)) for function in BUILDING_BLOCKS)


@pytest.mark.parametrize(("function", "module"), MODULES.items(), ids=lambda item: item.__name__)
def test_a_module_has_the_name_and_the_options_of_its_function(function, module):
    assert module.__name__.lower() == function.__name__.replace("_", "")
    takes, offers = (inspect.signature(each).parameters for each in (function, module))
    per_call = {"logits", "target", "proposals", "estimates", "mask", "noise"}
    for name, parameter in takes.items():
        if name not in per_call:
            assert offers[name].default == parameter.default, name
            assert offers[name].kind == parameter.kind, name
    assert set(offers) - set(takes) <= {"num_examples", "num_labels", "generator"}


@pytest.mark.parametrize("name", [*functional.__all__, *metrics.__all__, *nn.__all__])
def test_every_export_says_what_it_is(name):
    exported = getattr(functional, name, None) or getattr(metrics, name, None) or getattr(nn, name)
    assert exported.__doc__
    assert exported.__module__.startswith("shortlist.")

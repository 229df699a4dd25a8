"""The lists of contracts.py are complete: an export that no shared test sees fails here."""

from types import ModuleType

import pytest

from shortlist import functional, nn
from tests.contracts import LOSSES, POTENTIALS, PROJECTIONS, PROTOCOLS


def public_names(module: ModuleType) -> set[str]:
    return {
        name for name, value in vars(module).items() if not name.startswith("_") and not isinstance(value, ModuleType)
    }


@pytest.mark.parametrize("module", [functional, nn], ids=["functional", "nn"])
def test_every_public_name_is_exported_in_order(module):
    assert set(module.__all__) == public_names(module)
    assert len(module.__all__) == len(set(module.__all__))


def test_every_export_of_functional_has_a_contract():
    listed = [str(entry) for entry in PROJECTIONS + POTENTIALS]
    listed += [entry.__name__ for entry in LOSSES + PROTOCOLS]
    assert sorted(listed) == sorted(functional.__all__)


def test_every_export_of_nn_has_a_contract():
    listed = [entry.module.__name__ for entry in PROJECTIONS if entry.module]
    assert sorted(listed) == sorted(nn.__all__)


@pytest.mark.parametrize("projection", [entry for entry in PROJECTIONS if entry.module], ids=str)
def test_a_module_is_named_for_its_function(projection):
    assert projection.module.__name__.lower() == projection.op.__name__.replace("_", "")


@pytest.mark.parametrize("name", [*functional.__all__, *nn.__all__])
def test_every_export_says_what_it_is(name):
    exported = getattr(functional, name, None) or getattr(nn, name)
    assert exported.__doc__
    assert exported.__module__.startswith("shortlist.")

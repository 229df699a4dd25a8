"""Triton kernels compile for cards that are not there, and keep a row in registers."""

import importlib.util

import pytest

from benchmarks.gpu_compile import BLOCKS, TARGETS, compile_table

pytestmark = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="needs Triton")


def check(entries):
    broken = [entry for entry in entries if "error" in entry]
    assert not broken
    assert not [entry for entry in entries if entry["float64"]], "float64 for a whole block"
    assert not [entry for entry in entries if entry["spills"]]


def test_kernels_compile_for_one_card_without_spills():
    check(compile_table(targets=("sm_90",), blocks=BLOCKS[:1]))


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
def test_kernels_compile_for_every_card_at_every_block(target):
    check(compile_table(targets=(target,)))


def test_every_module_of_kernels_says_how_it_is_compiled():
    import pkgutil

    from benchmarks.gpu_compile import modules
    from shortlist.kernels import gpu

    names = {module.__name__.rpartition(".")[2] for module in modules()}
    parts = {found.name for found in pkgutil.iter_modules(gpu.__path__)}
    assert parts - names <= WITHOUT_KERNELS


WITHOUT_KERNELS = {"rows", "targets"}
"""Modules of device functions, which are compiled with the kernels that call them."""

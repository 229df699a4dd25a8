"""When a kernel is used: for plain float32 in memory, if numba can be imported."""

import sys

import pytest
import torch

from shortlist.functional import lml, sparse_top
from shortlist.kernels import chooser
from tests.python_process import run_python


def test_a_subclass_of_tensor_is_left_to_tensor_operations(fresh):
    class Tagged(torch.Tensor):
        pass

    logits = torch.randn(8, 1000, generator=fresh)
    assert not chooser.use_kernel(1.0, logits.as_subclass(Tagged))
    assert torch.allclose(lml(logits.as_subclass(Tagged), 5), lml(logits, 5), rtol=1e-5)


class Wrapper(torch.Tensor):
    """A tensor that has no memory of its own, as those of sharding and of tracing."""

    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

    def __init__(self, inner):
        self.inner = inner

    @classmethod
    def __torch_dispatch__(cls, function, kinds, arguments=(), options=None):
        unwrapped = torch.utils._pytree.tree_map_only(cls, lambda wrapper: wrapper.inner, (arguments, options or {}))
        return function(*unwrapped[0], **unwrapped[1])


@pytest.mark.parametrize("projection", [lml, sparse_top], ids=lambda op: op.__name__)
def test_what_is_no_memory_is_left_to_tensor_operations(projection, fresh):
    logits, upstream = torch.randn(8, 1000, generator=fresh), torch.randn(8, 1000, generator=fresh)
    expected = projection(logits, 5)
    assert torch.allclose(projection(logits, Wrapper(torch.full((8,), 5.0))), expected, rtol=1e-5)
    negated = torch._neg_view(-logits)
    assert torch.allclose(projection(negated, 5), expected, rtol=1e-5)
    assert torch.allclose(projection(torch._efficientzerotensor((8, 1000)), 5), torch.tensor(0.005))
    logits.requires_grad_()
    mine, theirs = (torch.autograd.grad(projection(logits, 5), logits, u)[0] for u in (Wrapper(upstream), upstream))
    assert torch.allclose(mine, theirs, rtol=1e-4, atol=1e-6)


def test_a_tracer_is_not_given_memory_that_is_not_filled_yet(fresh):
    from torch.fx.experimental.proxy_tensor import make_fx

    with pytest.raises(RuntimeError, match="tracing tensor"):
        make_fx(lambda x: lml(x, 5))(torch.randn(8, 1000, generator=fresh))


def test_a_numba_that_cannot_be_imported_is_as_none(tmp_path):
    (tmp_path / "numba.py").write_text("raise ImportError('made for another numpy')")
    code = "import torch, shortlist.functional as F; print(F.lml(torch.randn(8, 1000), 5).sum(-1).round().tolist())"
    assert run_python("-W", "error", "-c", code, PYTHONPATH=str(tmp_path)).stdout.strip() == str([5.0] * 8)


def test_whatever_the_import_of_numba_raises_it_is_as_none(tmp_path, monkeypatch):
    (tmp_path / "numba.py").write_text("raise AttributeError('coverage.types')")
    monkeypatch.syspath_prepend(tmp_path)
    with monkeypatch.context() as patch:
        for name in [name for name in sys.modules if name.partition(".")[0] == "numba"]:
            patch.delitem(sys.modules, name)
        assert chooser.can_compile.__wrapped__() is False


def test_code_that_cannot_be_kept_is_compiled_all_the_same(monkeypatch):
    def compiler(cache=False):
        if cache:
            raise RuntimeError("cannot cache function: no locator available")
        return lambda function: function

    assert chooser.keeping(compiler)(len) is len

"""What a step costs on an accelerator, counted without one: kernels, bytes, float64 on wide tensors, host reads.

Two counters share one `Cost`. A dispatch mode sees tensor operations, on the meta device or on the CPU: each call
that launches work is a kernel, and it reads and writes each of its distinct tensors once. Triton kernels run under
``TRITON_INTERPRET=1``: each launch is a kernel, and its bytes are those of its own loads and stores.

Both are lower bounds of a card's work: a sort is one call here and several passes there, and caches are ignored.
"""

from __future__ import annotations

import contextlib
import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import Tensor
from torch.fx.experimental import _config
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves

from shortlist.kernels import chooser
from shortlist.tensors import on_accelerator


@dataclass
class Cost:
    """What was counted."""

    kernels: int = 0
    bytes: int = 0
    wide_float64: int = 0
    """Kernels with float64 operands among whose tensors one is wide."""
    host_reads: int = 0
    """Waits of the host for the device: values that are read back, and sizes that depend on values."""
    wide_reads: int = 0
    """Host reads of a wide tensor: scores that leave the device."""
    uploads: int = 0
    """Tensors made from Python numbers, which are copied to the device and cannot be part of a CUDA graph."""
    launches: int = 0
    """Kernels written in Triton."""
    calls: Counter[str] = field(default_factory=Counter)
    """How often each operation was called, to see where the cost comes from."""
    bytes_of: Counter[str] = field(default_factory=Counter)
    """Bytes of each operation."""

    def add(self, name: str, size: int) -> None:
        """One kernel that moves ``size`` bytes."""
        self.kernels += 1
        self.bytes += size
        self.calls[name] += 1
        self.bytes_of[name] += size


def count(step: Callable[[], object], *, wide: int) -> Cost:
    """Run ``step`` once and count it.

    Args:
        step: anything on tensors of one device: meta, or the CPU (with ``SHORTLIST_KERNELS=device`` or ``triton``,
            so that it takes the code of accelerators).
        wide: the number of entries from which a tensor is wide: those of the logits, say.

    Example:
        >>> x = torch.empty(8, 1000, device="meta")
        >>> cost = count(lambda: (2 * x).sum(-1), wide=8000)
        >>> cost.kernels, cost.bytes  # 3 times the logits, and a number per row
        (2, 96032)
    """
    cost = Cost()
    with _kernels_under_the_counter(), _launches(cost), _Transfers(cost, wide), _Operations(cost, wide):
        step()
    return cost


_NO_WORK = {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "_unsafe_view", "lift_fresh"}
_NO_WORK |= {"detach", "detach_", "alias", "set_", "resize_", "is_same_size", "_reshape_alias", "sym_size"}
_WRITE_ONLY = {"copy_", "fill_", "zero_", "normal_", "uniform_", "random_", "bernoulli_", "exponential_"}
_WRITE_ONLY |= {"_foreach_copy_", "_foreach_zero_"}
_GATHER = {"gather", "index", "index_select", "take", "embedding", "_unsafe_index"}
"""Operations that read as many entries of their source as they return."""
_SCATTER = {"scatter_", "scatter_add_", "scatter_reduce_", "index_add_", "index_put_", "index_copy_", "index_fill_"}
_SCATTER |= {"_index_put_impl_"}
"""Operations in place that touch the entries at their indices only."""
_SIZE_BY_VALUE = {"nonzero", "masked_select", "_unique2", "unique_dim", "bincount", "equal", "_local_scalar_dense"}


_READ = "_local_scalar_dense"


class _Operations(TorchDispatchMode):
    """Counts tensor operations, and lets code that reads values on the meta device go on with zeros."""

    def __init__(self, cost: Cost, wide: int) -> None:
        super().__init__()
        self.cost, self.wide = cost, wide

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        with self:  # without autograd, composites arrive whole
            parts = func.decompose(*args, **kwargs)
        if parts is not NotImplemented:
            return parts
        name = func._schema.name.partition("::")[2]
        tensors = _tensors((args, kwargs))
        reads_value = _reads_value(name, tensors, args, kwargs)
        self.cost.host_reads += reads_value
        if reads_value and name in ("_to_copy", "copy_"):
            self.cost.wide_reads += tensors[-1].numel() >= self.wide
        if reads_value and any(tensor.is_meta for tensor in tensors):
            return _assumed(func, name, args, kwargs)
        result = func(*args, **kwargs)
        if not (name in _NO_WORK or func.is_view or torch.Tag.inplace_view in func.tags or name == _READ):
            self._add(func, name, args, kwargs, _tensors(result))
        return result

    def _add(self, func: Any, name: str, args: Any, kwargs: Any, results: list[Tensor]) -> None:
        self.cost.add(name, _moved(func, name, args, kwargs, results))
        everything = [*_tensors((args, kwargs)), *results]
        wide = any(_entries(tensor) >= self.wide for tensor in everything)
        # A tensor without dimensions is converted to the precision of the others, so it decides nothing.
        double = any(tensor.dtype in (torch.float64, torch.complex128) and tensor.ndim for tensor in everything)
        self.cost.wide_float64 += wide and double


def _reads_value(name: str, tensors: list[Tensor], args: Any, kwargs: dict[str, Any]) -> bool:
    if name in _SIZE_BY_VALUE or (name == "repeat_interleave" and kwargs.get("output_size") is None):
        return True
    if name in ("index", "index_put_", "_unsafe_index"):
        return any(index.dtype in (torch.bool, torch.uint8) for index in _tensors(args[1]))
    if name == "_to_copy":
        to = kwargs.get("device")
        return to is not None and torch.device(to).type == "cpu" and tensors[0].device.type != "cpu"
    return name == "copy_" and tensors[0].device.type == "cpu" and tensors[1].device.type != "cpu"


def _assumed(func: Any, name: str, args: Any, kwargs: dict[str, Any]) -> Any:
    """What a host that waits for a value of a meta tensor gets: zeros, and all of the entries where it counts them."""
    x = args[0]
    if name == _READ:
        return torch.empty((), dtype=x.dtype).zero_().tolist()
    if name == "_to_copy":
        return torch.zeros(x.shape, dtype=kwargs.get("dtype") or x.dtype)
    with _config.patch(meta_nonzero_assume_all_nonzero=True):
        return func(*args, **kwargs)


def _moved(func: Any, name: str, args: Any, kwargs: Any, results: list[Tensor]) -> int:
    """Bytes that are read and written, each distinct tensor once."""
    tensors = _tensors((args, kwargs))
    if name in _SCATTER:
        entries = max((_entries(tensor) for tensor in tensors[1:]), default=0)
        touched = min(entries, _entries(tensors[0])) * tensors[0].element_size()
        return _size(tensors[1:]) + touched * (1 if name in ("scatter_", "index_copy_", "index_fill_") else 2)
    if name in _GATHER:
        return _size(tensors[1:]) + 2 * _size(results)
    written = _written(func, args, kwargs)
    made = [tensor for tensor in results if not any(tensor is one for one in tensors)]
    read = [tensor for tensor in tensors if not (name in _WRITE_ONLY and any(tensor is one for one in written))]
    return _size(read) + _size(written) + _size(made)


def _written(func: Any, args: Any, kwargs: Any) -> list[Tensor]:
    """The arguments that the operation changes, by its schema."""
    if not func._schema.is_mutable:
        return []
    given = dict(zip((argument.name for argument in func._schema.arguments), args, strict=False)) | kwargs
    changed = [a.name for a in func._schema.arguments if a.alias_info is not None and a.alias_info.is_write]
    return _tensors([given.get(name) for name in changed])


def _tensors(tree: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)]


def _entries(tensor: Tensor) -> int:
    """Distinct entries: those of an expanded axis are one."""
    if tensor.layout != torch.strided:
        return tensor.numel()
    sizes = [size for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if stride or size == 0]
    return math.prod(sizes)


def _size(tensors: list[Tensor]) -> int:
    return sum(
        _entries(tensor) * tensor.element_size() for tensor in {_memory(tensor): tensor for tensor in tensors}.values()
    )


def _memory(tensor: Tensor) -> tuple[Any, ...]:
    """What two tensors that are views of the same entries share."""
    if tensor.layout != torch.strided:
        return (id(tensor),)
    at = tensor.untyped_storage()._cdata, tensor.storage_offset()
    return *at, tuple(tensor.shape), tensor.stride(), tensor.dtype


_FROM_NUMBERS = {torch.tensor, torch.as_tensor, torch.Tensor.new_tensor, torch.scalar_tensor}


_TO_HOST = {torch.Tensor.cpu, torch.Tensor.numpy}


class _Transfers(TorchFunctionMode):
    """Counts tensors that are made from Python numbers on the device.

    Of CPU tensors that stand for those of a device, also wide ones that go to the host, which no dispatch shows.
    """

    def __init__(self, cost: Cost, wide: int) -> None:
        super().__init__()
        self.cost, self.wide = cost, wide

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func in _TO_HOST and args[0].device.type == "cpu" and on_accelerator(args[0]):
            self.cost.wide_reads += args[0].numel() >= self.wide
        if func in _FROM_NUMBERS and isinstance(result, Tensor) and result.device.type != "cpu":
            self.cost.uploads += not (func is torch.as_tensor and isinstance(args[0], Tensor))
        return result


def _kernels_under_the_counter() -> Any:
    """Let kernels run although a dispatch mode, that of the counter, sees the operations."""

    def under_other_modes() -> bool:
        return torch._C._are_functorch_transforms_active() or torch._C._len_torch_dispatch_stack() > 1

    return mock.patch.object(chooser, "_under_modes", under_other_modes)


@contextlib.contextmanager
def _launches(cost: Cost) -> Iterator[None]:
    """Count launches of Triton kernels and their loads and stores, if the interpreter runs them."""
    if not chooser.has_triton():
        yield
        return
    from triton.runtime import interpreter

    builder, launch = interpreter.InterpreterBuilder, interpreter.GridExecutor.__call__
    size = 0

    def moves(times: int, original: Callable[..., Any], mask_at: int | None) -> Callable[..., Any]:
        def counted(self: Any, *arguments: Any) -> Any:
            nonlocal size
            pointers = next(one for one in arguments if hasattr(one, "get_element_ty"))
            mask = None if mask_at is None else arguments[mask_at]
            size += times * _addresses(pointers, mask) * pointers.get_element_ty().primitive_bitwidth // 8
            return original(self, *arguments)

        return counted

    def counted_launch(self: Any, *arguments: Any, **options: Any) -> Any:
        nonlocal size
        before = size
        with _disable_current_modes():  # the interpreter's own copies are not the kernel's
            result = launch(self, *arguments, **options)
        cost.launches += 1
        cost.add(self.fn.__name__, size - before)
        return result

    patches = {
        "create_masked_load": moves(1, builder.create_masked_load, 1),
        "create_masked_store": moves(1, builder.create_masked_store, 2),
        "create_atomic_rmw": moves(2, builder.create_atomic_rmw, 3),
        "create_atomic_cas": moves(2, builder.create_atomic_cas, None),
    }
    with (
        mock.patch.multiple(builder, **patches),
        mock.patch.object(interpreter.GridExecutor, "__call__", counted_launch),
    ):
        yield


def _addresses(pointers: Any, mask: Any) -> int:
    """Distinct entries that an access touches: one that many lanes read is read once."""
    places = np.asarray(pointers.data)
    if mask is not None:
        places = places[np.broadcast_to(mask.data, places.shape)]
    return int(np.unique(places).size)

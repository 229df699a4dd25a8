"""Taint tracking: raises if anything made of labels alone becomes as large as the scores: a mask of all labels.

A tensor is made of labels if the inputs of its operation include labels, but no scores, weights or noise. Zeros and the
like are made of nothing, even if they take their shape from scores; once labels are written to them, they are made of
labels. What counts is memory, so an expanded view is as small as its base. Numpy arrays are tracked, too.
"""

import weakref
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

NOTHING, LABELS, SCORES = 0, 1, 2
_NEW = ("zeros", "ones", "full", "empty", "rand")
_ARRAYS = ("zeros", "ones", "full", "empty", "zeros_like", "ones_like", "full_like", "empty_like")


class DenseLabelsError(AssertionError):
    """Something as large as the scores was made of labels alone."""


class LabelArray(np.ndarray):
    """A numpy array made of labels: results computed from it are checked."""

    limit = 0

    def __array_finalize__(self, source: object) -> None:
        _refuse(self.size, self.limit, "an array")

    def __array_ufunc__(self, ufunc, method, *inputs, out=None, **options):
        return _marked(getattr(ufunc, method)(*map(_plain, inputs), **options), inputs)

    def __array_function__(self, function, types, inputs, options):
        plain = [[_plain(part) for part in one] if isinstance(one, list | tuple) else _plain(one) for one in inputs]
        return _marked(function(*plain, **{name: _plain(option) for name, option in options.items()}), inputs)


class LabelTaint(TorchDispatchMode):
    """Raises if a tensor made of labels alone has at least ``limit`` numbers; ``seen`` counts the tensors tracked."""

    def __init__(self, limit: int) -> None:
        super().__init__()
        self.limit, self.seen = limit, 0
        self._marks: dict[int, int] = {}
        self._kept: list[object] = []  # keeps addresses unique

    def mark(self, kind: int, *tensors: Tensor | None) -> None:
        """Declare what tensors are made of."""
        for tensor in tensors:
            if tensor is not None:
                self._set(tensor, kind)

    def kind(self, tensor: Tensor) -> int:
        """Return what a tensor is made of."""
        return self._marks.get(self._key(tensor), NOTHING)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        name = func.overloadpacket.__name__.removeprefix("new_")
        inputs = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        kinds = [self.kind(tensor) for tensor in inputs]
        result = func(*args, **kwargs)
        made_of = NOTHING if name.startswith(_NEW) else max(kinds, default=NOTHING)
        for tensor in tree_leaves(result):
            if isinstance(tensor, Tensor):
                self._set(tensor, made_of)
                if made_of == LABELS:
                    self.seen += 1
                    _refuse(self._size(tensor), self.limit, f"{func}")
        return result

    def _set(self, tensor: Tensor, kind: int) -> None:
        # Tensors that share memory, such as the parts of a sparse tensor, are made of the same.
        self._marks[self._key(tensor)] = max(kind, self.kind(tensor))
        self._kept.append(tensor if tensor.layout != torch.strided else tensor.untyped_storage())

    def _key(self, tensor: Tensor) -> int:
        return id(tensor) if tensor.layout != torch.strided else tensor.untyped_storage()._cdata

    def _size(self, tensor: Tensor) -> int:
        if tensor.layout != torch.strided:
            return 0  # its parts are checked when they are accessed
        return tensor.untyped_storage().nbytes() // tensor.element_size()


def _refuse(size: int, limit: int, what: str) -> None:
    if limit and size >= limit:
        raise DenseLabelsError(f"{what} made {size} numbers of labels alone, at least {limit}")


def _plain(value):
    return value.view(np.ndarray) if isinstance(value, LabelArray) else value


def _marked(result, inputs):
    """Mark the result of numpy as made of labels, unless a large array of something else is among the inputs."""
    arrays = [leaf for leaf in tree_leaves(inputs) if isinstance(leaf, np.ndarray)]
    if any(not isinstance(array, LabelArray) and array.size >= LabelArray.limit for array in arrays):
        return result
    wrapped = [part.view(LabelArray) if isinstance(part, np.ndarray) else part for part in tree_leaves([result])]
    return type(result)(wrapped) if isinstance(result, tuple) else wrapped[0]


@contextmanager
def only_few_labels(limit: int) -> Iterator[LabelTaint]:
    """Raise for tensors and arrays of labels alone from ``limit`` numbers on, and for new numpy arrays of that size."""
    mode, patch = LabelTaint(limit), _Patch()
    LabelArray.limit = limit
    to_numpy, from_numpy, of_tensor = Tensor.numpy, torch.from_numpy, Tensor.__array__

    def numpy(self, *args, **options):
        array = to_numpy(self, *args, **options)
        return array.view(LabelArray) if mode.kind(self) == LABELS else array

    def array(self, *args, **options):
        result = of_tensor(self, *args, **options)
        return result.view(LabelArray) if mode.kind(self) == LABELS else result

    def tensor_of(array):
        tensor = from_numpy(_plain(array))
        # Large arrays that are not made of labels are made of scores; small ones, such as ranges, of nothing.
        kind = LABELS if isinstance(array, LabelArray) else SCORES if array.size >= limit else NOTHING
        mode.mark(kind, tensor)
        return tensor

    def refusing(name: str):
        make = getattr(np, name)

        def made(*args, **options):
            result = make(*args, **options)
            _refuse(result.size, limit, f"numpy.{name}")
            return result

        return made

    patch.set(Tensor, "numpy", numpy)
    patch.set(Tensor, "__array__", array)
    patch.set(torch, "from_numpy", tensor_of)
    for name in _ARRAYS:
        patch.set(np, name, refusing(name))
    try:
        with mode:
            yield mode
    finally:
        patch.undo()
        LabelArray.limit = 0


class _Patch:
    """Attributes that are set temporarily."""

    def __init__(self) -> None:
        self._before: list[tuple[object, str, object]] = []

    def set(self, owner: object, name: str, value: object) -> None:
        self._before.append((owner, name, getattr(owner, name)))
        setattr(owner, name, value)

    def undo(self) -> None:
        for owner, name, value in reversed(self._before):
            setattr(owner, name, value)


class PeakMemory(TorchDispatchMode):
    """The peak number of bytes of the tensors created inside."""

    def __init__(self) -> None:
        super().__init__()
        self.peak = self._held = 0
        self._known: set[int] = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, Tensor) and tensor.layout == torch.strided:
                self._count(tensor.untyped_storage())
        return result

    def _count(self, storage: torch.UntypedStorage) -> None:
        key, size = storage._cdata, storage.nbytes()
        if key in self._known:
            return
        self._known.add(key)
        self._held += size
        self.peak = max(self.peak, self._held)
        weakref.finalize(storage, self._free, key, size)

    def _free(self, key: int, size: int) -> None:
        self._known.discard(key)
        self._held -= size

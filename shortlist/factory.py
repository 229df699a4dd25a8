"""Losses and heads by name: build modules from a configuration or the command line."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Mapping
from typing import Any

from torch import nn as torch_nn

from shortlist import nn
from shortlist.errors import InputError
from shortlist.nn import Loss, Task


def _exported_losses() -> list[type[Loss]]:
    exported = [getattr(nn, name) for name in nn.__all__]
    losses = [value for value in exported if isinstance(value, type) and issubclass(value, Loss) and value is not Loss]
    return sorted(losses, key=lambda loss: (not loss.one_class, loss.name))


LOSSES = {loss.name: loss for loss in _exported_losses()}
"""Every loss that `shortlist.nn` exports: those for one class first, then those for sets."""

_FORMER_NAMES = {former: name for name, loss in LOSSES.items() for former in loss.former_names}

BOTTLENECK_WIDTH = 50
"""The default width of a bottleneck head, and of the slack of the DFT head that it is compared with."""

HEADS: dict[str, Callable[..., torch_nn.Module]] = {
    "linear": torch_nn.Linear,
    "cosine": nn.CosineHead,
    "bottleneck": lambda features, labels, /, *, bottleneck=BOTTLENECK_WIDTH, **options: nn.BottleneckHead(
        features, labels, bottleneck, **options
    ),
    "dft": nn.DFTHead,
    "clusters": nn.ClusterHead,
}


def current_name(loss: str, *, warn: bool = True) -> str:
    """The current name of a loss, also if it is spelled with dashes; any other text is returned unchanged.

    Args:
        loss: a current or former name.
        warn: whether a former name warns; saved models may use former names silently.

    Example:
        >>> current_name("lml", warn=False), current_name("two-way"), current_name("other-one")
        ('lml_nll', 'two_way', 'other-one')
    """
    spelled = loss.replace("-", "_")
    loss = spelled if spelled in LOSSES or spelled in _FORMER_NAMES else loss
    if loss not in _FORMER_NAMES:
        return loss
    name = _FORMER_NAMES[loss]
    if warn:
        warnings.warn(f"The loss {loss!r} is now called {name!r}.", DeprecationWarning, stacklevel=3)
    return name


def loss_class(name: str) -> type[Loss]:
    """The class of a loss; a former name warns.

    Example:
        >>> loss_class("bce").link, loss_class("truncated_topk_entropy").starts_at_frequencies
        ('sigmoid', False)
    """
    name = current_name(name)
    _check_name("loss", LOSSES, name)
    return LOSSES[name]


def make_loss(name: str, task: Task, options: Mapping[str, Any] | None = None) -> Loss:
    """Create a loss by name; options that are not given are derived from the data.

    Example:
        >>> import torch
        >>> make_loss("lml_nll", Task(10, torch.ones(10), 10, k=3), {"temperature": 2.0})
        LMLNLL(k=3, temperature=2.0, reduction='mean')
    """
    _check_options("loss", name, loss_class(name), options or {})
    return _made("loss", name, lambda: loss_class(name).from_task(task, **(options or {})))


def make_head(
    name: str, in_features: int, num_labels: int, *, loss: str, options: Mapping[str, Any] | None = None
) -> torch_nn.Module:
    """Create a head by name; ``auto`` chooses the one that suits the loss.

    A loss with two heads gets a `TwoHead` of two identical heads.

    Example:
        >>> make_head("auto", 4, 10, loss="ldam")
        CosineHead(in_features=4, num_labels=10, scale=1.0)
        >>> type(make_head("auto", 4, 10, loss="average_k")).__name__
        'TwoHead'
    """
    wanted = loss_class(loss)
    name = wanted.head if name == "auto" else name
    _check_name("head", HEADS, name)
    _check_options("head", name, HEADS[name], options or {}, shape=2)
    heads = [
        _made("head", name, lambda: HEADS[name](in_features, num_labels, **(options or {})))
        for _ in range(wanted.num_heads)
    ]
    return heads[0] if wanted.num_heads == 1 else nn.TwoHead(*heads)


def _check_name(what: str, known: Mapping[str, Any], name: str) -> None:
    if name not in known:
        raise InputError(f"`{what}` must be one of {', '.join(known)}; got {name!r}.")


def _check_options(
    what: str, name: str, constructor: Callable[..., Any], options: Mapping[str, Any], *, shape: int = 0
) -> None:
    """Refuse options that a constructor does not have; its first ``shape`` arguments are no options."""
    parameters = inspect.signature(constructor).parameters.values()
    if any(each.kind is each.VAR_KEYWORD for each in parameters):
        return
    known = [each.name for each in parameters][shape:]
    for option in options:
        if option not in known:
            raise InputError(f"`{what}_options` of {name!r} must be among {', '.join(known)}; got {option!r}.")


def _made(what: str, name: str, make: Callable[[], Any]) -> Any:
    try:
        return make()
    except InputError:
        raise
    except (TypeError, ValueError) as error:
        # Constructors check the names, types and values of their options, which come from the user.
        reason = str(error).rstrip(".")
        raise InputError(f"`{what}` {name!r}: {reason}.") from error

"""Models that predict sets of labels.

Subpackages load on first use, so ``import shortlist`` and ``shortlist --help`` do not wait for torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shortlist import functional, nn, sets, targets

__version__ = "0.1.0"

__all__ = ["__version__", "functional", "nn", "sets", "targets"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return import_module(f"shortlist.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__

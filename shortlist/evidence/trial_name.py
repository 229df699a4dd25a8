"""A trial that travels by its name to workers that do not have its module among those they can import."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from operator import attrgetter
from pathlib import Path
from typing import Any


class NamedTrial:
    """A function of a module; a process that it is sent to finds it by its name when it calls it.

    Args:
        trial: the function.
        sources: the folder that its package is in, on all machines.
    """

    def __init__(self, trial: Callable[..., Any], sources: Path) -> None:
        self._module, self._name, self._sources = trial.__module__, trial.__qualname__, str(sources.resolve())

    def __call__(self, *arguments: Any) -> Any:
        """Call the function."""
        if self._sources not in sys.path:
            sys.path.insert(0, self._sources)
        try:
            trial = attrgetter(self._name)(importlib.import_module(self._module))
        except (ModuleNotFoundError, AttributeError) as error:
            raise ValueError(
                f"`{self._sources}` must hold {self._module}:{self._name} on every worker: {error}."
            ) from error
        return trial(*arguments)

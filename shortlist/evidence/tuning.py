"""Hyper-parameters chosen on validation rows, with the same number of tries for every candidate."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shortlist.evidence.lab import Lab, Trial


@dataclass(frozen=True)
class Choice:
    """What was chosen for a candidate.

    Args:
        options: the best of those that were tried.
        tried: options and the validation figure, all of them.
    """

    options: Mapping[str, Any]
    tried: Sequence[tuple[Mapping[str, Any], float]]

    def edges(self) -> list[str]:
        """The options whose chosen number is the least or the greatest of those tried: more of it might do better.

        Example:
            >>> points = [{"learning_rate": rate, "k": 5} for rate in (0.1, 0.2, 0.3)]
            >>> Choice(points[2], [(point, 0.5) for point in points]).edges()
            ['learning_rate']
        """
        found = []
        for name, value in self.options.items():
            values = {point[name] for point, _ in self.tried if isinstance(point[name], int | float)}
            if len(values) > 1 and value in (min(values), max(values)):
                found.append(name)
        return found


def tuned(
    lab: Lab,
    trial: Trial,
    grids: Mapping[str, Sequence[Mapping[str, Any]]],
    settings: Callable[[str, Mapping[str, Any], int], Mapping[str, Any]],
    *,
    figure: str,
    seeds: Sequence[int],
) -> dict[str, Choice]:
    """Try every point of the grid of every candidate and keep the one with the highest figure.

    Nothing is tried where every grid has one point, as where a text says what it has chosen.

    Args:
        lab: runs the trials.
        trial: gives at least ``figure``, measured on validation rows; it must not look at the test rows.
        grids: by candidate, the options to try; as many for each, so that none has a larger budget.
        settings: from candidate, options and seed to the settings of the trial.
        figure: to be as high as can be; its mean over ``seeds`` decides, and what is no number, or diverges,
            loses.
        seeds: best not those of the final runs.

    Returns:
        The choice for each candidate.
    """
    sizes = {len(grid) for grid in grids.values()}
    if len(sizes) != 1 or 0 in sizes:
        raise ValueError(f"`grids` must have as many points for each candidate; got {sorted(sizes)}.")
    if sizes == {1}:
        return {name: Choice(grid[0], []) for name, grid in grids.items()}
    asked = [(name, at, seed) for name, grid in grids.items() for at in range(len(grid)) for seed in seeds]
    found = lab.attempts(trial, [settings(name, grids[name][at], seed) for name, at, seed in asked])
    figures: dict[tuple[str, int], list[float]] = {}
    for (name, at, _), values in zip(asked, found, strict=True):
        value = None if values is None else values[figure]
        figures.setdefault((name, at), []).append(-math.inf if value is None or math.isnan(value) else value)
    choices = {}
    for name, grid in grids.items():
        means = [sum(figures[name, at]) / len(seeds) for at in range(len(grid))]
        best = max(range(len(grid)), key=means.__getitem__)
        choices[name] = Choice(grid[best], list(zip(grid, means, strict=True)))
    return choices

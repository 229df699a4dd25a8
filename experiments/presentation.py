"""What studies share in presenting results: exact checks, differences by seed, charts with bands, words on tuning."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from shortlist.evidence import Choice, Figure, Finding, Lab
from shortlist.evidence.verdicts import FAILS, HOLDS
from shortlist.report.chart import Chart, Series, Style
from shortlist.report.chart_matplotlib import draw_chart, save_figure
from shortlist.train.comparison import Interval

DPI = 110


def checked(agrees: bool, why: str) -> Finding:
    """The verdict of a deterministic check.

    Example:
        >>> checked(2 + 2 == 4, "2 + 2 = 4")
        Finding(verdict='holds', why='2 + 2 = 4', parts=())
    """
    return Finding(HOLDS if agrees else FAILS, why)


def power(x: Sequence[float], y: Sequence[float]) -> float:
    """The exponent a of the power law ``y = c x^a`` that fits best: the slope of a line through the logarithms.

    Example:
        >>> round(power([1.0, 2.0, 4.0], [3.0, 6.0, 12.0]), 6)
        1.0
    """
    if len(x) != len(y) or len(set(x)) < 2:
        raise ValueError(f"`x` must have at least 2 different values, and `y` as many; got {len(set(x))} and {len(y)}.")
    logs = [(math.log(a), math.log(b)) for a, b in zip(x, y, strict=True)]
    mean_x, mean_y = (math.fsum(side) / len(logs) for side in zip(*logs, strict=True))
    return math.fsum((a - mean_x) * (b - mean_y) for a, b in logs) / math.fsum((a - mean_x) ** 2 for a, _ in logs)


def worded(value: float) -> str:
    """A number with few digits and a typographic exponent.

    Example:
        >>> worded(2.22e-16), worded(0.0), worded(0.125)
        ('2·10⁻¹⁶', '0', '0.125')
    """
    if value == 0 or 1e-3 <= abs(value) < 1e4:
        return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"
    mantissa, exponent = f"{value:.0e}".split("e")
    return f"{mantissa}·10{str(int(exponent)).translate(str.maketrans('-0123456789', '⁻⁰¹²³⁴⁵⁶⁷⁸⁹'))}"


def differences(ours: Sequence[float], other: Sequence[float]) -> list[float]:
    """Differences, paired by seed."""
    return [a - b for a, b in zip(ours, other, strict=True)]


def mean(values: Sequence[float]) -> float:
    """The mean over seeds."""
    return Interval.of(list(values)).mean


def interval_line(name: str, x: Sequence[float], values: Sequence[Sequence[float]], style: Style) -> list[Series]:
    """A band of 95% intervals and the line of means; ``values`` has one list over seeds for each x."""
    found = [Interval.of(each) for each in values]
    # There is no interval for a single seed: the band has no width.
    widths = [0.0 if math.isnan(each.half_width) else each.half_width for each in found]
    low = tuple(each.mean - width for each, width in zip(found, widths, strict=True))
    high = tuple(each.mean + width for each, width in zip(found, widths, strict=True))
    means = tuple(each.mean for each in found)
    return [
        Series(name, "band", tuple(x), low, style, high, in_legend=False),
        Series(name, "line", tuple(x), means, style, marked=True),
    ]


def limits_around(series: Sequence[Series]) -> tuple[float, float]:
    """Axis limits that show all of the series with some padding."""
    values = [value for each in series for value in (*each.y, *each.high) if value is not None]
    padding = 0.06 * (max(values) - min(values)) + 0.002
    return min(values) - padding, max(values) + padding


def saved(chart: Chart, lab: Lab, file: str, caption: str) -> Figure:
    """Draw a chart into the experiment's folder of pictures."""
    save_figure(draw_chart(chart), lab.figures / file, dpi=DPI)
    return Figure(file, caption)


def file_name(words: str, suffix: str = ".png") -> str:
    """A file name of letters, digits and hyphens."""
    return "".join(character if character.isalnum() else "-" for character in words.lower()) + suffix


def data_words(data: Mapping[str, Any]) -> str:
    """The name of a dataset in the settings."""
    return str(data.get("loader") or data.get("open"))


def fit_words(settings: Mapping[str, Any]) -> str:
    """Model and budget of a comparison, in one sentence."""
    fit = settings["fit"]
    size = ", ".join(f"{name} {value}" for name, value in fit.get("encoder_options", {}).items())
    words = f"Encoder {fit.get('encoder', 'auto')}" + (f" ({size})" if size else "")
    words += f", at most {fit['epochs']} epochs" + (f" of {fit['optimizer']}" if "optimizer" in fit else "")
    words += f", batches of {fit['batch_size']}" if "batch_size" in fit else ""
    return f"{words}; {len(settings['seeds'])} seeds."


def tuning_words(choices: Mapping[str, Choice], score: str) -> str:
    """How options were chosen, in one sentence."""
    points = len(next(iter(choices.values())).tried)
    if not points:
        return "Options are those of the paper."
    return f"Each loss had a grid of {points} points, chosen by {score} on validation rows."


def tried_words(choices: Mapping[str, Choice], prefix: str = "") -> list[str]:
    """One sentence for each candidate that was tuned: the grid, the scores, and the choice.

    Example:
        >>> choice = Choice({"learning_rate": 0.1}, [({"learning_rate": 0.1}, 0.5), ({"learning_rate": 0.2}, 0.4)])
        >>> tried_words({"lml": choice})
        ['lml: learning rate 0.1, 0.2 (40.0 to 50.0% on validation rows); chosen learning rate 0.1 (at the edge).']
    """
    sentences = []
    for name, choice in choices.items():
        if not choice.tried:
            continue
        points, scores = [options for options, _ in choice.tried], [score for _, score in choice.tried]
        values = {key: list(dict.fromkeys(_value_words(point[key]) for point in points)) for key in points[0]}
        grid = "; ".join(f"{_option_words(key)} {', '.join(each)}" for key, each in values.items())
        edges = choice.edges()
        chosen = ", ".join(
            f"{_option_words(key)} {_value_words(value)}{' (at the edge)' if key in edges else ''}"
            for key, value in choice.options.items()
        )
        spread = f"{100 * min(scores):.1f} to {100 * max(scores):.1f}% on validation rows"
        sentences.append(f"{prefix}{name}: {grid} ({spread}); chosen {chosen}.")
    return sentences


def _option_words(option: str) -> str:
    return option.rpartition(".")[2].replace("_", " ")


def _value_words(value: Any) -> str:
    """A number, or the sizes of hidden layers."""
    return f"{value:g}" if isinstance(value, int | float) else "×".join(map(str, value)) or "none"

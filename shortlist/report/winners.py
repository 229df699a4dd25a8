"""Who won: the best candidate for each figure, what cannot be told from it, and how far the optimum is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from shortlist.report.figure_words import FigureWords, figure_title, shown_name

AUDITED = {"sign": "output", "top-k": "ranked first"}
"""What an audit asks of a label set, by its mode."""


@dataclass(frozen=True)
class Winner:
    """The best candidate for one figure.

    Args:
        figure: its name in the document.
        better: ``"lower"`` or ``"higher"``.
        name: of the best candidate.
        mean: over its seeds.
        half_width: half of its 95% interval; None with one seed.
        ties: who cannot be told from it.
        optimum: the figure of the exact probabilities; None where they are not known.
        gap: how much worse than the optimum the best is; negative when it happens to be better on these rows.
    """

    figure: str
    better: str | None
    name: str
    mean: float
    half_width: float | None
    ties: tuple[str, ...]
    optimum: float | None
    gap: float | None


def main_figures(document: dict[str, Any]) -> list[str]:
    """The figures that a short table shows: the target, and those at the K that was asked for.

    Example:
        >>> figures = [{"name": name} for name in ("recall@8", "recall@1", "map", "precision@5")]
        >>> main_figures({"k": 8, "target": "precision@5", "figures": figures})
        ['recall@8', 'map', 'precision@5']
    """
    asked = f"@{max(1, round(document['k']))}"
    names = [figure["name"] for figure in document["figures"]]
    at_k = [name for name in names if name == document["target"] or "@" not in name or name.endswith(asked)]
    # Where there are fewer labels than K, nothing has that size.
    return at_k if any("@" in name for name in at_k) or not any("@" in name for name in names) else names


def winners(document: dict[str, Any]) -> list[Winner]:
    """The winner of every figure that can be better or worse, the target first."""
    found = []
    for figure in sorted(document["figures"], key=lambda figure: figure["name"] != document["target"]):
        names = document["best"].get(figure["name"])
        if not names:
            continue
        interval = document["candidates"][names[0]]["intervals"][figure["name"]]
        optimum = None if document["optimum"] is None else document["optimum"]["values"].get(figure["name"])
        gap = None if optimum is None else (interval["mean"] - optimum) * (-1 if figure["better"] == "higher" else 1)
        ties = tuple(names[1:])
        found.append(
            Winner(
                figure["name"], figure["better"], names[0], interval["mean"], interval["half_width"], ties, optimum, gap
            )
        )
    return found


def summary_sentence(document: dict[str, Any]) -> str:
    """Who wins the target, in words."""
    best = winners(document)[0]
    words = FigureWords(document, best.figure)
    seeds = len(document["candidates"][best.name]["runs"])
    over = f" over {seeds} seeds" if seeds > 1 else " with one seed"
    value = words.sentence({"mean": best.mean, "half_width": best.half_width})
    name = figure_title(best.figure)
    if len(document["candidates"]) == 1:
        return f"The {name} of {shown_name(best.name)} is {value}{over}{_distance(best, words)}."
    order = {"lower": "lowest", "higher": "highest"}.get(best.better or "", "best")
    told = f" It cannot be told apart from {listed(best.ties, 'and')}." if best.ties else ""
    alone = " Each of the others is worse in its 95% interval, paired by seed." if not best.ties and seeds > 1 else ""
    once = " One seed cannot tell skill from luck." if seeds == 1 else ""
    return f"{shown_name(best.name)} has the {order} {name}: {value}{over}{_distance(best, words)}.{told}{alone}{once}"


def summary_of(document: dict[str, Any]) -> dict[str, Any]:
    """The same as plain JSON: the winners and the audits of a comparison."""
    audits = {name: candidate["audit"] for name, candidate in document["candidates"].items()}
    keys = ("mode", "sets", "argmaxable", "unargmaxable", "undecided", "labels", "features")
    return {
        "data": document["data"]["name"],
        "k": document["k"],
        "target": document["target"],
        "winners": [asdict(winner) | {"ties": list(winner.ties)} for winner in winners(document)],
        "audits": {name: {key: found[key] for key in keys} for name, found in audits.items() if found is not None},
    }


def audit_sentence(name: str, audit: dict[str, Any]) -> str:
    """What a layer can never output, in words.

    Example:
        >>> found = {"mode": "sign", "sets": 2900, "unargmaxable": 800, "undecided": 0, "labels": 1428, "features": 50}
        >>> audit_sentence("bce", found)
        'bce: 800 of 2,900 distinct label sets of the test rows can never be output by this layer, whatever its input.'
        >>> audit_sentence("dft", found | {"unargmaxable": 0})
        'dft: all 2,900 distinct label sets of the test rows can be output by this layer.'
    """
    act = f"be {AUDITED[audit['mode']]} by"
    sets, never, undecided = audit["sets"], audit["unargmaxable"], audit["undecided"]
    rest = f"; {undecided:,} could not be decided" if undecided else ""
    if not never:
        some = f"{sets - undecided:,} of" if undecided else "all"
        return f"{shown_name(name)}: {some} {sets:,} distinct label sets of the test rows can {act} this layer{rest}."
    which = f"{never:,} of {sets:,} distinct label sets of the test rows"
    return f"{shown_name(name)}: {which} can never {act} this layer, whatever its input{rest}."


def gap_words(winner: Winner, words: FigureWords, of: str = "") -> str:
    """The distance to the optimum with its unit, such as ``"1.7 points above 10.3 %"``; empty where it is not known."""
    if winner.optimum is None:
        return ""
    side = "above" if winner.mean >= winner.optimum else "below"
    unit = " points" if words.is_share else ""
    optimum = words.sentence({"mean": winner.optimum, "half_width": None})
    return f"{words.value(abs(winner.mean - winner.optimum))}{unit} {side} {of}{optimum}"


def _distance(winner: Winner, words: FigureWords) -> str:
    found = gap_words(winner, words, "the optimum of ")
    return f", {found}" if found else ""


def listed(names: Sequence[str], last: str = "") -> str:
    """Names in a row, with semicolons between them where one holds a comma.

    Args:
        names: as users gave them.
        last: what stands before the last, such as ``"and"``.

    Example:
        >>> listed(["bce", "lml", "rml"], "and"), listed(["bce, wide", "lml"]), listed(["bce, wide", "lml"], "and")
        ('bce, lml and rml', 'bce, wide; lml', 'bce, wide; and lml')
    """
    shown = [shown_name(name) for name in names]
    commas = any("," in name for name in shown)
    between = "; " if commas else ", "
    if not last or len(shown) < 2:
        return between.join(shown)
    return f"{between.join(shown[:-1])}{';' if commas else ''} {last} {shown[-1]}"

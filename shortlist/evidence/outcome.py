"""What a study gives: claims with verdicts, tables, figures, and a word on what was tried."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from shortlist.evidence.verdicts import Finding
from shortlist.train.comparison import Interval

Cell = str | float | int | Interval | None


@dataclass(frozen=True)
class Claim:
    """A published claim and what became of it.

    Args:
        text: the claim, in one sentence of our own.
        published: the figures of the text, in a few words.
        finding: the verdict, with the figures that it rests on.
    """

    text: str
    published: str
    finding: Finding


@dataclass(frozen=True)
class Table:
    """Rows of cells under a title.

    Args:
        title: what it shows, with the unit.
        columns: headings; the first one is that of the names of the rows.
        rows: as many cells each. An `Interval` is shown as mean ± half width, None as a dash.
        percent: numbers are shares and shown as percent.
        digits: how many decimals.
        note: one sentence below.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    percent: bool = False
    digits: int = 1
    note: str = ""

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(f"`rows` of {self.title!r} must have {len(self.columns)} cells; got {len(row)}.")


@dataclass(frozen=True)
class Figure:
    """A picture that the study wrote.

    Args:
        file: its name, in the folder of the figures of the experiment.
        caption: what is seen, in one or two sentences.
    """

    file: str
    caption: str


@dataclass(frozen=True)
class Outcome:
    """What a study gives.

    Args:
        setup: one paragraph: data, model, budget, seeds, and how hyper-parameters were chosen.
        claims, tables, figures: to be shown.
        tried: what was tried before a negative verdict; one sentence each.
        values: figures of every seed, plain values for whoever wants to compute with them.
    """

    setup: str
    claims: Sequence[Claim] = ()
    tables: Sequence[Table] = ()
    figures: Sequence[Figure] = ()
    tried: Sequence[str] = ()
    values: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Plain values; intervals as ``{"mean", "half_width"}``."""
        return asdict(self)

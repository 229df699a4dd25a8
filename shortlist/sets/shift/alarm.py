"""An alarm for streams that stop being like the calibration rows, with a bound on false alarms."""

from __future__ import annotations

import json
import math
from bisect import bisect_left, bisect_right, insort
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from shortlist.files import decoding, read_document, replacing
from shortlist.labels import Numbers, read_numbers
from shortlist.sets.rule import Draw
from shortlist.tensors import check_number

if TYPE_CHECKING:
    from typing_extensions import Self

_FORMAT, _VERSION = "shortlist shift alarm", 1
_BETS = (-1.0, 0.0, 1.0)


class ShiftAlarm:
    r"""Bets against the claim that a stream is exchangeable with the calibration rows (a conformal test martingale).

    Every row is one number: the set size of any rule, which needs no labels; the conformity of the true label
    (`SplitConformal.true_conformity`); or any other statistic. Its smoothed conformal p-value, the random rank among
    all numbers before it, is uniform and independent of the ones before if the rows are exchangeable. The Simple Jumper
    bets on small and on large p-values at once:

    .. math:: M_t = \sum_\epsilon C_t^\epsilon, \quad
              C_t^\epsilon = \big(1 + \epsilon\,(p_t - \tfrac12)\big)
              \big((1 - J)\,C_{t-1}^\epsilon + \tfrac J3 M_{t-1}\big), \quad \epsilon \in \{-1, 0, 1\}

    The alarm is raised when M reaches 1 / delta. By Ville's inequality, if the rows are exchangeable it is *ever*
    raised with probability at most ``delta``, however long the stream. With ``restart``, M starts over from 1 whenever
    it is below (CUSUM): a shift after a long quiet time is then found as fast as an early one, and what holds is that
    the expected number of rows until a false alarm is at least 1 / delta.

    A shift that leaves the distribution of the numbers as it was raises no alarm. Numbers are remembered, so memory
    grows with the stream.

    Args:
        delta: in (0, 1).
        jump: J, in (0, 1): how much of the capital is spread anew before each bet.
        restart: whether to start over when M falls below 1.
        generator: source of the random ranks of ties; by default one with a fresh seed.

    Example:
        >>> from shortlist.sets import ShiftAlarm
        >>> sizes = torch.randint(1, 4, (500,), generator=torch.Generator().manual_seed(0))
        >>> alarm = ShiftAlarm(0.01, generator=torch.Generator().manual_seed(1)).fit(sizes[:300])
        >>> alarm.update(sizes[300:]).raised
        False
        >>> alarm.update(sizes[300:] + 2).raised
        True
        >>> alarm.raised_at  # of the rows of the stream, from 0
        225

    References:
        Vovk, Petej, Nouretdinov, Ahlberg, Carlsson, Gammerman, "Retrain or not retrain: conformal test martingales for
        change-point detection", 2021.
    """

    def __init__(
        self,
        delta: float = 0.01,
        *,
        jump: float = 0.01,
        restart: bool = False,
        generator: torch.Generator | None = None,
    ) -> None:
        for name, value in (("delta", delta), ("jump", jump)):
            if not 0 < check_number(name, value) < 1:
                raise ValueError(f"`{name}` must lie strictly between 0 and 1; got {value}.")
        self.delta, self.jump, self.restart = float(delta), float(jump), bool(restart)
        self._draw = Draw(generator)
        self._values: list[float] = []
        self.steps = 0
        self.raised_at: int | None = None
        self.log_capital = 0.0
        self._shares = [1 / len(_BETS)] * len(_BETS)

    @property
    def raised(self) -> bool:
        """Whether the alarm was raised at any row so far; it stays raised."""
        return self.raised_at is not None

    def fit(self, values: Numbers) -> Self:
        """Start from the numbers of calibration rows, ``(N,)``."""
        found = sorted(_read_values(values))
        if not found:
            raise ValueError("`values` must have at least one number.")
        self._values, self.steps, self.raised_at, self.log_capital = found, 0, None, 0.0
        self._shares = [1 / len(_BETS)] * len(_BETS)
        return self

    def update(self, values: Numbers) -> Self:
        """Bet on further rows of the stream, ``(B,)`` numbers in the order in which they arrived."""
        if not self._values:
            raise ValueError("ShiftAlarm must be fitted before it is updated.")
        read = _read_values(values)
        for value, uniform in zip(read, self._draw.uniform((len(read),)).tolist(), strict=True):
            below, upto = bisect_left(self._values, value), bisect_right(self._values, value)
            self._bet((below + uniform * (1 + upto - below)) / (len(self._values) + 1))
            insort(self._values, value)
        return self

    def _bet(self, p: float) -> None:
        spread = [(1 - self.jump) * share + self.jump / len(_BETS) for share in self._shares]
        won = [share * (1 + bet * (p - 0.5)) for share, bet in zip(spread, _BETS, strict=True)]
        growth = sum(won)
        self._shares = [share / growth for share in won]
        before = max(self.log_capital, 0.0) if self.restart else self.log_capital
        self.log_capital = before + math.log(growth)
        if self.raised_at is None and self.log_capital >= -math.log(self.delta):
            self.raised_at = self.steps
        self.steps += 1

    def save(self, path: str | Path) -> None:
        """Write the state as JSON, from which `load` resumes exactly."""
        content = {
            "format": _FORMAT,
            "version": _VERSION,
            "options": {"delta": self.delta, "jump": self.jump, "restart": self.restart},
            "values": self._values,
            "steps": self.steps,
            "raised_at": self.raised_at,
            "log_capital": self.log_capital,
            "shares": self._shares,
            "draw": self._draw.state(),
        }
        with replacing(path) as partial:
            partial.write_text(json.dumps(content))

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Continue where `save` left off.

        Raises:
            InputError: if the file is damaged, of another kind, or of another version.
        """
        content = read_document(path, kind=_FORMAT, version=_VERSION)
        with decoding(path):
            options, numbers = content["options"], [content["log_capital"], *content["shares"]]
            alarm = cls(float(options["delta"]), jump=float(options["jump"]), restart=bool(options["restart"]))
            alarm.fit(torch.tensor(content["values"], dtype=torch.float64))
            alarm.log_capital, *alarm._shares = _read_values(torch.tensor(numbers, dtype=torch.float64))
            if len(alarm._shares) != len(_BETS) or not all(0 < share <= 1 for share in alarm._shares):
                raise ValueError("`shares` must be as many as there are bets, in (0, 1]")
            alarm.steps, alarm.raised_at = content["steps"], content["raised_at"]
            if type(alarm.steps) is not int or type(alarm.raised_at) not in (int, type(None)):
                raise TypeError("`steps` and `raised_at` must be integers")
            alarm._draw = Draw.from_state(content["draw"])
        return alarm


def _read_values(values: Numbers) -> list[float]:
    read = read_numbers(values, name="values").detach().double().cpu()
    if read.ndim != 1 or not read.isfinite().all():
        raise ValueError(f"`values` must be finite numbers of shape (rows,); got shape {tuple(read.shape)}.")
    return read.tolist()

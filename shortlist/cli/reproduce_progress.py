"""How far a long series of experiments is, and how long it will take: a bar on a terminal, lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from shortlist.cli.work_bar import work_bar

_SECONDS_BETWEEN_LINES = 30.0
_ENOUGH_MINUTES = 0.5


@dataclass(eq=False)
class ReproduceProgress:
    """Counts experiments by the minutes that they are known to take.

    Args:
        minutes: by experiment, in the order of the work.
        bar: takes what is done, what there is, and what is going on; None where there is no terminal.
    """

    minutes: Mapping[str, float]
    bar: Callable[[float, int, str], None] | None
    began: float = field(default_factory=time.monotonic)
    shares: dict[str, tuple[float, float]] = field(default_factory=dict)
    last_line: float = 0.0

    @contextmanager
    def running(self, name: str) -> Iterator[Callable[[float, float], None]]:
        """While an experiment runs; takes the shares of its trials that are done, and that were run just now."""
        self._tell(name, 0.0, 0.0, always=True)
        yield lambda done, fresh: self._tell(name, min(done, 1.0), fresh, always=False)
        self._tell(name, 1.0, self.shares[name][1], always=True)

    def say(self, line: str) -> None:
        """A line above the bar."""
        sys.stderr.write(f"{line}\n")

    def seconds_left(self) -> float:
        """By the minutes of what is not done, at the pace of what was run just now."""
        weights = {name: max(minutes, 0.05) for name, minutes in self.minutes.items()}
        fresh = sum(weights[name] * share for name, (_, share) in self.shares.items())
        left = sum(weights[name] * (1 - self.shares.get(name, (0.0, 0.0))[0]) for name in weights)
        elapsed = (time.monotonic() - self.began) / 60
        pace = elapsed / fresh if fresh >= _ENOUGH_MINUTES else 1.0
        return 60 * left * pace

    def _tell(self, name: str, done: float, fresh: float, *, always: bool) -> None:
        self.shares[name] = (done, fresh)
        place = list(self.minutes).index(name)
        if self.bar is not None:
            self.bar(place + done, len(self.minutes), f"{name}, {_time(self.seconds_left())} left in all")
            return
        now = time.monotonic()
        if always or now - self.last_line > _SECONDS_BETWEEN_LINES:
            self.last_line = now
            share = "done" if done >= 1 else f"{done:.0%}"
            self.say(
                f"[{place + 1}/{len(self.minutes)}] {name}: {share}, after {_time(now - self.began)}, "
                f"about {_time(self.seconds_left())} left"
            )


@contextmanager
def reproduce_progress(minutes: Mapping[str, float]) -> Iterator[ReproduceProgress]:
    """Tell of progress on standard error until the work ends."""
    with work_bar("experiments", times=False) as bar:
        yield ReproduceProgress(minutes, bar)


def _time(seconds: float) -> str:
    """Minutes and seconds.

    Example:
        >>> _time(135.2)
        '2 min 15 s'
    """
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"

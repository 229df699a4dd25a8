"""Splits with every label in training and in test, found by flipping chains of rows until no label is missing."""

from __future__ import annotations

import numpy as np

from shortlist.data.dataset import Dataset
from shortlist.data.draws import Draws
from shortlist.data.procedures.splits import TEST, TRAIN, VAL, check_shares, with_parts
from shortlist.data.procedures.training_rows import exact_share
from shortlist.data.target_rows import label_pairs
from shortlist.errors import InputError

_MOVES_PER_ROW = 20


def split_covering_labels(dataset: Dataset, *, val: float = 0.1, test: float = 0.1, seed: int = 0) -> Dataset:
    """Split at random, but with every label present in training and in test.

    Otherwise a set could count as one that a layer cannot express when in fact a label was never seen in training. If a
    label has only two rows, they must be on different sides, so chains of such rows alternate. Chains are flipped until
    every label is on both sides; the other rows are assigned at random to reach the shares. The test part is larger
    than its share if the labels require it.

    Args:
        dataset: labels in any form; each label that occurs must be present in two rows.
        val, test, seed: as in `split_at_random`, with ``test`` above 0.

    Raises:
        ValueError: if a label occurs only once, or if no split is found; `frequent_labels` removes rare labels.

    Example:
        >>> from shortlist.data import Dataset, Features, split_covering_labels
        >>> rows = Dataset(Features(torch.zeros(20, 1)), torch.arange(20) % 10, tuple("abcdefghij"))
        >>> split_covering_labels(rows, val=0, test=0.5).label_counts("test").tolist()
        [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]

    References:
        Grivas, Vergari and Lopez, "Taming the sigmoid bottleneck", 2024, appendix H.
    """
    check_shares(val, test)
    if test == 0:
        raise ValueError("`test` must be above 0, since labels must be present there; got 0.")
    rows, labels, present = (part.numpy() for part in label_pairs(dataset.targets, dataset.num_labels))
    counts = np.bincount(labels[present], minlength=dataset.num_labels)
    if (counts == 1).any():
        name = dataset.label_names[int(np.flatnonzero(counts == 1)[0])]
        number = int((counts == 1).sum())
        raise InputError(f"`dataset` must have each label twice; {number} occur once, for example {name!r}.")
    search = _Cover(rows[present], labels[present], len(dataset), dataset.num_labels, Draws(seed, "covering split"))
    missing = search.run()
    if missing is not None:
        name = dataset.label_names[missing]
        raise InputError(f"`dataset`: no split was found with every label on both sides; {name!r} is missing on one.")
    size_test = exact_share(test, len(dataset))
    search.fill(TEST, TRAIN, len(dataset) - size_test)
    search.fill(TRAIN, VAL, exact_share(val, len(dataset)))
    search.fill(TRAIN, TEST, size_test)
    return with_parts(dataset, search.part)


class _Cover:
    """The part of each row, and how often each label is in training and in test."""

    def __init__(self, rows: np.ndarray, labels: np.ndarray, num_rows: int, num_labels: int, draws: Draws) -> None:
        self.draws = draws
        self.labels_of = _lists(rows, labels, num_rows)
        self.rows_of = _lists(labels, rows, num_labels)
        self.chain, self.chains, self.part = self._alternate(num_rows)
        self.seen = {side: np.zeros(num_labels, dtype=np.int64) for side in (TRAIN, TEST)}
        for side, seen in self.seen.items():
            seen += np.bincount(labels[self.part[rows] == side], minlength=num_labels)

    def _alternate(self, num_rows: int) -> tuple[list[int], list[list[int]], np.ndarray]:
        """Chains of rows that must alternate, with initial sides; an unconstrained row is a chain of its own."""
        neighbors: list[list[int]] = [[] for _ in range(num_rows)]
        for rows in self.rows_of:
            if len(rows) == 2:
                neighbors[rows[0]].append(rows[1])
                neighbors[rows[1]].append(rows[0])
        part = np.full(num_rows, TRAIN)
        chain, chains = [-1] * num_rows, []
        coins = self.draws.below(np.full(num_rows, 2))
        for first in range(num_rows):
            if chain[first] >= 0:
                continue
            chain[first], members = len(chains), [first]
            if neighbors[first]:
                part[first] = TEST if coins[first] else TRAIN
            for row in members:
                for other in neighbors[row]:
                    if chain[other] < 0:
                        chain[other] = len(chains)
                        part[other] = TRAIN + TEST - part[row]
                        members.append(other)
            chains.append(members)
        return chain, chains, part

    def run(self) -> int | None:
        """Flip chains until each label is on both sides; returns a label that is not, or None."""
        lacking = [label for label, rows in enumerate(self.rows_of) if rows and self._lacks(label)]
        for _ in range(_MOVES_PER_ROW * len(self.part) + 1000):
            while lacking and not self._lacks(lacking[-1]):
                lacking.pop()
            if not lacking:
                return None
            label = lacking[-1]
            lacking.extend(self._flip(self._best_chain(label)))
        return next((label for label in lacking if self._lacks(label)), None)

    def _lacks(self, label: int) -> bool:
        return bool(self.seen[TRAIN][label] == 0 or self.seen[TEST][label] == 0)

    def _best_chain(self, label: int) -> int:
        """Of a few chains through the label, the one whose flip leaves the fewest labels one-sided; sometimes any."""
        rows = self.rows_of[label]
        tried = [self.chain[rows[position]] for position in self.draws.below(np.full(min(len(rows), 8), len(rows)))]
        if self.draws.below(np.array([8]))[0] == 0:
            return tried[0]
        harm = [self._harm(chain) for chain in tried]
        return tried[harm.index(min(harm))]

    def _harm(self, chain: int) -> int:
        """How many labels of the chain would be on one side after a flip."""
        after: dict[int, int] = {}
        for row in self.chains[chain]:
            step = 1 if self.part[row] == TRAIN else -1
            for label in self.labels_of[row]:
                after[label] = after.get(label, 0) + step
        test, train = self.seen[TEST], self.seen[TRAIN]
        return sum(test[label] + step <= 0 or train[label] - step <= 0 for label, step in after.items())

    def _flip(self, chain: int) -> list[int]:
        """Flip the sides of a chain; returns its labels that are now on one side."""
        touched = set()
        for row in self.chains[chain]:
            self._move(row, TRAIN + TEST - self.part[row])
            touched.update(self.labels_of[row])
        return [label for label in sorted(touched) if self._lacks(label)]

    def _move(self, row: int, part: int) -> None:
        for side, step in ((self.part[row], -1), (part, 1)):
            if side in self.seen:
                self.seen[side][self.labels_of[row]] += step
        self.part[row] = part

    def fill(self, source: int, part: int, size: int) -> None:
        """Fill a part up to a size with random rows that the source can spare."""
        short = size - int((self.part == part).sum())
        for row in self.draws.order(len(self.part)).tolist():
            if short <= 0:
                return
            if self.part[row] == source and (self.seen[source][self.labels_of[row]] > 1).all():
                self._move(row, part)
                short -= 1


def _lists(keys: np.ndarray, values: np.ndarray, count: int) -> list[list[int]]:
    """The values of each key."""
    order = np.argsort(keys, kind="stable")
    bounds = np.searchsorted(keys[order], np.arange(1, count))
    return [part.tolist() for part in np.split(values[order], bounds)] if count else []

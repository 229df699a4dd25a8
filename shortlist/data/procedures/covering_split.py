"""Splits with every label on both sides: found by moving chains of rows until nothing is missing."""

from __future__ import annotations

import numpy as np

from shortlist.data.dataset import Dataset
from shortlist.data.draws import Draws
from shortlist.data.procedures.splits import TEST, TRAIN, VAL, check_shares, exact_share, with_parts
from shortlist.data.target_rows import label_pairs

_MOVES_PER_ROW = 20


def split_covering_labels(dataset: Dataset, *, val: float = 0.1, test: float = 0.1, seed: int = 0) -> Dataset:
    """Split by chance, but with every label present in training and in test.

    Else a set would count as one that a layer cannot say when in truth nobody taught it a label. The two rows of a
    label that has no more must part, and so chains of such rows alternate; chains are turned around until every label
    is on both sides, and the other rows are dealt out by chance to reach the shares. The test part is larger than its
    share where the labels need it.

    Args:
        dataset: labels in any form; each label that occurs must be present in two rows.
        val, test, seed: as of `split_at_random`, with ``test`` above 0.

    Raises:
        ValueError: when a label occurs once only, or when no split is found; `frequent_labels` removes rare ones.

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
        raise ValueError("`test` must be above 0, for labels are to be present there; got 0.")
    rows, labels, present = (part.numpy() for part in label_pairs(dataset.targets, dataset.num_labels))
    counts = np.bincount(labels[present], minlength=dataset.num_labels)
    if (counts == 1).any():
        name = dataset.label_names[int(np.flatnonzero(counts == 1)[0])]
        number = int((counts == 1).sum())
        raise ValueError(f"`dataset` must have each label twice; {number} occur once, {name!r} for one.")
    search = _Cover(rows[present], labels[present], len(dataset), dataset.num_labels, Draws(seed, "covering split"))
    missing = search.run()
    if missing is not None:
        name = dataset.label_names[missing]
        raise ValueError(f"`dataset`: no split was found with every label on both sides; {name!r} is missing on one.")
    size_test = exact_share(test, len(dataset))
    search.deal(TEST, TRAIN, len(dataset) - size_test)
    search.deal(TRAIN, VAL, exact_share(val, len(dataset)))
    search.deal(TRAIN, TEST, size_test)
    return with_parts(dataset, search.part)


class _Cover:
    """Which part each row is in, and how often each label is in training and in test."""

    def __init__(self, rows: np.ndarray, labels: np.ndarray, num_rows: int, num_labels: int, draws: Draws) -> None:
        self.draws = draws
        self.labels_of = _lists(rows, labels, num_rows)
        self.rows_of = _lists(labels, rows, num_labels)
        self.chain, self.chains, self.part = self._alternate(num_rows)
        self.seen = {side: np.zeros(num_labels, dtype=np.int64) for side in (TRAIN, TEST)}
        for side, seen in self.seen.items():
            seen += np.bincount(labels[self.part[rows] == side], minlength=num_labels)

    def _alternate(self, num_rows: int) -> tuple[list[int], list[list[int]], np.ndarray]:
        """Chains of rows that must alternate, with their first sides; a row that nothing forces is a chain alone."""
        neighbours: list[list[int]] = [[] for _ in range(num_rows)]
        for rows in self.rows_of:
            if len(rows) == 2:
                neighbours[rows[0]].append(rows[1])
                neighbours[rows[1]].append(rows[0])
        part = np.full(num_rows, TRAIN)
        chain, chains = [-1] * num_rows, []
        coins = self.draws.below(np.full(num_rows, 2))
        for first in range(num_rows):
            if chain[first] >= 0:
                continue
            chain[first], members = len(chains), [first]
            if neighbours[first]:
                part[first] = TEST if coins[first] else TRAIN
            for row in members:
                for other in neighbours[row]:
                    if chain[other] < 0:
                        chain[other] = len(chains)
                        part[other] = TRAIN + TEST - part[row]
                        members.append(other)
            chains.append(members)
        return chain, chains, part

    def run(self) -> int | None:
        """Turn chains around until each label is on both sides; else tell a label that is not."""
        lacking = [label for label, rows in enumerate(self.rows_of) if rows and self._lacks(label)]
        for _ in range(_MOVES_PER_ROW * len(self.part) + 1000):
            while lacking and not self._lacks(lacking[-1]):
                lacking.pop()
            if not lacking:
                return None
            label = lacking[-1]
            lacking.extend(self._turn(self._best_chain(label)))
        return next((label for label in lacking if self._lacks(label)), None)

    def _lacks(self, label: int) -> bool:
        return bool(self.seen[TRAIN][label] == 0 or self.seen[TEST][label] == 0)

    def _best_chain(self, label: int) -> int:
        """Of a few chains through the label, the one whose turn leaves fewest labels on one side; at times any."""
        rows = self.rows_of[label]
        tried = [self.chain[rows[place]] for place in self.draws.below(np.full(min(len(rows), 8), len(rows)))]
        if self.draws.below(np.array([8]))[0] == 0:
            return tried[0]
        harm = [self._harm(chain) for chain in tried]
        return tried[harm.index(min(harm))]

    def _harm(self, chain: int) -> int:
        """How many labels would be on one side after a turn, of those that the chain touches."""
        after: dict[int, int] = {}
        for row in self.chains[chain]:
            step = 1 if self.part[row] == TRAIN else -1
            for label in self.labels_of[row]:
                after[label] = after.get(label, 0) + step
        test, train = self.seen[TEST], self.seen[TRAIN]
        return sum(test[label] + step <= 0 or train[label] - step <= 0 for label, step in after.items())

    def _turn(self, chain: int) -> list[int]:
        """Change the sides of a chain; returns the labels that are on one side now."""
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

    def deal(self, source: int, part: int, size: int) -> None:
        """Fill a part up to a size with rows that the source can spare, by chance."""
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

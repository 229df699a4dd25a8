"""`Taxonomy`: a rooted tree or DAG whose leaves are the labels, as compact tables that rules and metrics read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor

from shortlist.limits import advice, limit


class Csr(NamedTuple):
    """A list of nodes for each node: those of node v are ``nodes[indptr[v] : indptr[v + 1]]``, ascending."""

    indptr: Tensor
    nodes: Tensor

    def of(self, which: Tensor) -> tuple[Tensor, Tensor]:
        """The lists of some nodes, one after the other: the place in ``which`` of each entry, and the entry."""
        counts = self.indptr.diff()[which]
        place = torch.repeat_interleave(counts)
        inside = torch.arange(len(place), device=place.device) - (counts.cumsum(0) - counts)[place]
        return place, self.nodes[self.indptr[which][place] + inside]


class Level(NamedTuple):
    """The edges from the nodes of one depth, by parent.

    Attributes:
        parents, children: ``(edges,)``.
        nodes: the parents, each once.
        ends: the number of edges up to the last of each of them.
    """

    parents: Tensor
    children: Tensor
    nodes: Tensor
    ends: Tensor


@dataclass(frozen=True, eq=False)
class Taxonomy:
    """Labels and the groups above them: a rooted tree, or a DAG where nodes may have several parents.

    Node 0 up to n - 1 are the labels, in the order of the scores; then come the inner nodes, each after all nodes below
    it, and the root is the last. Labels are leaves. A label that has labels below it ("Quercus" beside "Quercus
    robur") needs a leaf of its own, such as "Quercus, other".

    Usually made by `taxonomy_from_parents`, `taxonomy_from_csv`, `taxonomy_from_networkx`, `taxonomy_from_groups` or
    ``Dataset.taxonomy``.

    Args:
        names: of all nodes, all different.
        parents: of each node, its parents, which have larger numbers; none for the root.
        num_labels: n.

    Example:
        >>> from shortlist.taxonomy import taxonomy_from_parents
        >>> trees = taxonomy_from_parents({"robur": "Quercus", "ilex": "Quercus", "Quercus": "tree", "ash": "tree"})
        >>> trees
        <Taxonomy: 3 labels below 2 inner nodes, a tree of depth 2>
        >>> trees.names
        ('robur', 'ilex', 'ash', 'Quercus', 'tree')
        >>> trees.sizes
        tensor([1, 1, 1, 2, 3])
        >>> trees.masses(torch.tensor([[0.5, 0.25, 0.25]]))[:, 3:]
        tensor([[0.7500, 1.0000]], dtype=torch.float64)
    """

    names: tuple[str, ...]
    parents: tuple[tuple[int, ...], ...]
    num_labels: int

    def __post_init__(self) -> None:
        if len(self.parents) != len(self.names):
            raise ValueError(f"`parents` must have an entry for each of {len(self.names)} nodes.")
        if not 1 <= self.num_labels < len(self.names):
            raise ValueError(f"`num_labels` must be at least 1 and below the nodes, {len(self.names)}.")
        if len(set(self.names)) < len(self.names):
            raise ValueError(f"`names` must differ; {Counter(self.names).most_common(1)[0][0]!r} occurs twice.")
        root, above = len(self.names) - 1, set()
        for node, parents in enumerate(self.parents):
            least = max(node + 1, self.num_labels)
            if not all(type(parent) is int and least <= parent <= root for parent in parents):
                raise ValueError(f"`parents` of node {node} must be inner nodes after it; got {list(parents)}.")
            if (not parents) != (node == root) or len(set(parents)) < len(parents):
                raise ValueError(f"`parents` of node {node} must be there and differ, and only the root has none.")
            above.update(parents)
        if len(above) < len(self.names) - self.num_labels:
            raise ValueError("`parents` must give every inner node a child.")
        _ = self.ancestors  # refuses what is too deep before anything is computed with it

    def __repr__(self) -> str:
        """Say in one line what it holds."""
        labels, inner = self.num_labels, len(self) - self.num_labels
        what = "a tree" if self.is_tree else "a DAG"
        return f"<Taxonomy: {labels:,} labels below {inner:,} inner nodes, {what} of depth {int(self.depths.max())}>"

    def __len__(self) -> int:
        """Return the number of nodes."""
        return len(self.names)

    def __eq__(self, other: object) -> bool:
        """Whether names and parents are equal."""
        return isinstance(other, Taxonomy) and self.document() == other.document()

    __hash__ = None  # pyright: ignore[reportAssignmentType]

    @property
    def root(self) -> int:
        """The number of the root."""
        return len(self) - 1

    @cached_property
    def is_tree(self) -> bool:
        """Whether no node has two parents."""
        return all(len(parents) == 1 for parents in self.parents[:-1])

    @cached_property
    def depths(self) -> Tensor:
        """``(nodes,)`` int64: the length of the longest path from the root."""
        depths = [0] * len(self)
        for node in range(len(self) - 2, -1, -1):
            depths[node] = 1 + max(depths[parent] for parent in self.parents[node])
        return torch.tensor(depths)

    @cached_property
    def ancestors(self) -> Csr:
        """The ancestors of each node, itself included."""
        lists: list[list[int]] = [[] for _ in self.names]
        most, total = limit("ancestors"), 0
        for node in range(len(self) - 1, -1, -1):
            lists[node] = sorted({node}.union(*(lists[parent] for parent in self.parents[node])))
            total += len(lists[node])
            if total > most:
                raise ValueError(f"a taxonomy has too many pairs of a node and an ancestor: {advice('ancestors')}.")
        return _csr(lists)

    @cached_property
    def edges(self) -> Csr:
        """The parents of each node."""
        return _csr(self.parents)

    @cached_property
    def labels_below(self) -> Csr:
        """The labels at or below each node."""
        count = int(self.ancestors.indptr[self.num_labels])
        labels, nodes = torch.repeat_interleave(self.ancestors.indptr.diff()[: self.num_labels]), self.ancestors.nodes
        order = nodes[:count].argsort(stable=True)
        sizes = torch.bincount(nodes[:count], minlength=len(self))
        return Csr(torch.cat([sizes.new_zeros(1), sizes.cumsum(0)]), labels[order])

    @cached_property
    def sizes(self) -> Tensor:
        """``(nodes,)`` int64: how many labels are at or below each node."""
        return self.labels_below.indptr.diff()

    @cached_property
    def ancestor_table(self) -> Tensor:
        """``(n, most)`` int64: the ancestors of each label, itself included; short rows end with the root."""
        counts = self.ancestors.indptr.diff()[: self.num_labels]
        table = torch.full((self.num_labels, int(counts.max())), self.root)
        rows, nodes = self.ancestors.of(torch.arange(self.num_labels))
        table[rows, torch.arange(len(rows)) - (counts.cumsum(0) - counts)[rows]] = nodes
        return table

    @cached_property
    def levels(self) -> list[Level]:
        """The edges from parents of depth 0, 1, ..."""
        children, parents = self.edges.of(torch.arange(len(self)))
        by_parent = parents.argsort(stable=True)
        children, parents = children[by_parent], parents[by_parent]
        depth, levels = self.depths[parents], []
        for d in range(int(self.depths.max())):
            above, below = parents[depth == d], children[depth == d]
            nodes, counts = above.unique_consecutive(return_counts=True)
            levels.append(Level(above, below, nodes, counts.cumsum(0)))
        return levels

    @cached_property
    def _intervals(self) -> tuple[Tensor, Tensor, Tensor]:
        """Of a tree: the labels in an order in which those below any node are consecutive, and where they are."""
        start, free = [0] * len(self), [0] * len(self)
        sizes = self.sizes.tolist()
        for node in range(len(self) - 2, -1, -1):
            parent = self.parents[node][0]
            start[node] = free[node] = free[parent]
            free[parent] += sizes[node]
        first = torch.tensor(start)
        return first[: self.num_labels].argsort(), first, first + self.sizes

    @cached_property
    def _pairs(self) -> tuple[Tensor, Tensor]:
        """Each label with each of its ancestors."""
        return self.ancestors.of(torch.arange(self.num_labels))

    def prepare(self) -> Taxonomy:
        """Compute all tables now, since a compiler or an exporter cannot trace how they are made."""
        _ = self.levels, self.ancestor_table, self.sizes, self._intervals if self.is_tree else self._pairs
        return self

    def masses(self, values: Tensor) -> Tensor:
        """Sum non-negative values ``(rows, n)`` over the labels at or below each node: ``(rows, nodes)`` float64.

        Rounding is monotone: no node has less mass than one below it. A row's sums do not depend on other rows.
        """
        device = values.device
        if not self.is_tree:
            label, node = (part.to(device) for part in self._pairs)
            empty = values.new_zeros(values.shape[0], len(self), dtype=torch.float64)
            return empty.index_add(1, node, values.double()[:, label])
        order, start, stop = (part.to(device) for part in self._intervals)
        # Differences of one running sum over nested intervals are monotone even when rounded.
        sums = torch.nn.functional.pad(values[:, order].double().cumsum(-1), (1, 0))
        return sums[:, stop] - sums[:, start]

    def contains(self, nodes: Tensor, labels: Tensor) -> Tensor:
        """Whether each label is at or below the node beside it; broadcasts."""
        table = self.ancestor_table.to(labels.device)
        return (table[labels] == nodes.unsqueeze(-1)).any(-1)

    def document(self) -> dict[str, Any]:
        """Plain values for a JSON file, from which `from_document` makes an equal taxonomy."""
        return {"names": list(self.names), "parents": [list(p) for p in self.parents], "num_labels": self.num_labels}

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Taxonomy:
        """Make a taxonomy from the values of `document`; TypeError or ValueError for what is none.

        Example:
            >>> Taxonomy.from_document({"names": ["ash", "oak", "tree"], "parents": [[2], [2], []], "num_labels": 2})
            <Taxonomy: 2 labels below 1 inner nodes, a tree of depth 1>
        """
        if not isinstance(document, Mapping) or document.keys() != {"names", "parents", "num_labels"}:
            raise TypeError("`taxonomy` must be a Taxonomy, or a mapping of names, parents and num_labels.")
        names, parents, num_labels = (document[key] for key in ("names", "parents", "num_labels"))
        listed = isinstance(names, list) and isinstance(parents, list) and all(isinstance(p, list) for p in parents)
        if not listed or type(num_labels) is not int or not all(isinstance(name, str) for name in names):
            raise TypeError("`taxonomy` must have a list of names, a list of lists of parents, and an integer.")
        return cls(tuple(names), tuple(map(tuple, parents)), num_labels)


def _csr(lists: Sequence[Sequence[int]]) -> Csr:
    indptr = torch.tensor([0, *map(len, lists)]).cumsum(0)
    return Csr(indptr, torch.tensor([node for nodes in lists for node in nodes], dtype=torch.int64))

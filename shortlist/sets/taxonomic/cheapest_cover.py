"""Few names per answer: the conformal set, covered by nodes at the least cost in labels and names."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from shortlist.sets.scores import Block, Link
from shortlist.sets.taxonomic.rule import TaxonomyRule
from shortlist.taxonomy import Taxonomy
from shortlist.tensors import check_number

_PARTS = 1 << 10


class CheapestCover(TaxonomyRule):
    r"""The cheapest nodes that hold all labels above a threshold, where a node costs its labels and its name.

    .. math:: C(x) = \bigcup V, \quad V = \arg\min_{V} \sum_{v \in V} (|v| + c) \;\text{ with }\;
              \{l : s_l(x) \ge t\} \subseteq \bigcup V

    |v| is the number of labels of node v, and c is ``name_cost``: what a name costs, in labels. With c = 0 the sets are
    those of `AverageError`; the larger c, the fewer and the larger the nodes, up to one. The cheapest nodes are found
    exactly (each node's cost is the smaller of its own and the sum of its children's), and lower thresholds
    only add labels. Split conformal prediction therefore holds for the *covers*: for exchangeable data the true label
    is in the set with probability between :math:`1 - \alpha` and :math:`1 - \alpha + 1 / (N + 1)`, for any model. Ties
    are exact, by a random number per row. Only for trees: on a DAG the cheapest cover is NP-hard to find.

    ``predict`` answers with labels, `predict_nodes` with nodes.

    Args:
        alpha: miscoverage level, in (0, 1).
        taxonomy: of the labels, a tree.
        name_cost: what a name costs, in labels; at least 0, and rounded to a multiple of 1/1024.
        link, min_size: as in `SetRule`.

    Example:
        >>> from shortlist.taxonomy import taxonomy_from_groups
        >>> trees = taxonomy_from_groups(["robur", "ilex", "ash"], {"genus": ["Quercus", "Quercus", "Fraxinus"]})
        >>> scores = torch.tensor([[0.9, 0.1, 0.0], [0.5, 0.4, 0.1], [0.4, 0.5, 0.1], [0.1, 0.1, 0.8]])
        >>> rule = CheapestCover(0.4, trees, name_cost=0.5)
        >>> rule = rule.fit(scores, torch.tensor([0, 1, 0, 2]), from_logits=False)
        >>> rule.predict_nodes(torch.tensor([[0.95, 0.05, 0.0], [0.45, 0.45, 0.1], [0.5, 0.05, 0.45]])).to_list()
        [['robur'], ['Quercus'], ['robur', 'ash']]

    References:
        Mortier, Hüllermeier, Dembczyński, Waegeman, "Set-valued prediction in hierarchical classification with
        constrained representation complexity", 2022.
    """

    constraint: ClassVar[str] = "average error, with few names"

    def __init__(
        self,
        alpha: float,
        taxonomy: Taxonomy,
        *,
        name_cost: float = 1.0,
        link: Link = "softmax",
        min_size: int = 0,
    ) -> None:
        self.name_cost = check_number("name_cost", name_cost, at_least=0.0)
        super().__init__(alpha, taxonomy, link=link, min_size=min_size)
        if not self.taxonomy.is_tree:
            node = next(i for i, parents in enumerate(self.taxonomy.parents) if len(parents) > 1)
            raise ValueError(f"`taxonomy` must be a tree; {self.taxonomy.names[node]!r} has several parents.")

    def _entry(self, block: Block, classes: Tensor) -> Tensor:
        values = block.marked()
        own = values.gather(1, classes[:, None])
        entry, above = own.clone(), (values > own).any(-1).nonzero()[:, 0]  # the best label is the first to enter
        values, own = values[above], own[above]
        best = values.sort(-1, descending=True).values
        # Bisection over the scores of the row: the label is in the set at the last of them, not before the first.
        low, high = torch.full_like(above[:, None], -1), (best > own).sum(-1, keepdim=True)
        while bool((high - low > 1).any()):
            middle = (low + high + 1) // 2
            inside = self._covered(values >= best.gather(1, middle)).gather(1, classes[above][:, None])
            low, high = torch.where(inside, low, middle), torch.where(inside, middle, high)
        entry[above] = best.gather(1, high)
        return entry[:, 0]

    def _set_at(self, block: Block, strict: Tensor) -> Tensor:
        values, threshold = block.marked(), self.threshold.to(block.values)
        active = (values > threshold) | (~strict & (values == threshold))
        return self._covered(active & (values > -torch.inf))

    def _covered(self, active: Tensor) -> Tensor:
        """Mask of the labels in the cheapest cover of the ``active`` labels ``(rows, n)``."""
        tree, n = self.taxonomy, self.taxonomy.num_labels
        # Costs are counted in small parts, so that sums are exact and nested sets stay nested.
        name_cost = min(round(self.name_cost * _PARTS), n * _PARTS)
        exact = torch.int32 if n * (_PARTS + name_cost) < 1 << 31 else torch.int64
        whole = (tree.sizes * _PARTS + name_cost).to(active.device, exact)
        costs = torch.nn.functional.pad(active.to(exact) * (_PARTS + name_cost), (0, len(tree) - n))
        named = torch.zeros_like(costs, dtype=torch.bool)
        for level in reversed(tree.levels):
            nodes = level.nodes.to(active.device)
            sums = costs[:, level.children.to(active.device)].cumsum(-1, dtype=exact)
            sums = sums[:, level.ends.to(active.device) - 1]
            apart = sums.diff(dim=-1, prepend=torch.zeros_like(sums[:, :1]))
            named[:, nodes] = (whole[nodes] <= apart) & (apart > 0)
            costs[:, nodes] = torch.minimum(apart, whole[nodes])
        for level in tree.levels:
            children = level.children.to(active.device)
            named[:, children] = named[:, children] | named[:, level.parents.to(active.device)]
        return active | named[:, :n]

"""One node per answer: the most specific group of labels that is right at the promised rate."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from shortlist.sets.scores import Block, Link
from shortlist.sets.taxonomic.rule import TaxonomyRule
from shortlist.taxonomy import Taxonomy


class DeepestNode(TaxonomyRule):
    r"""Answer at the level that one can be sure of: a label, or a node above it, that is right at rate 1 - alpha.

    .. math:: C(x) = \text{the deepest node on the path with mass} > q, \quad
              \text{path: from the root to the child with the largest mass, and so on}

    The mass of a node is the sum of the probabilities of its labels. If q is at least 1/2, no node of mass above q is
    deeper, on a tree. The nodes on the path contain each other, so split conformal prediction holds: for exchangeable
    data, the true label is below the node with probability at least :math:`1 - \alpha`, for any model, and at most
    :math:`1 - \alpha + 1 / (N + 1)` unless plain labels are right more often than that, as an answer is never
    empty. Ties are exact, by a random number per row. Trees and DAGs.

    ``predict`` answers with the labels of the node, `predict_nodes` with the node.

    Args:
        alpha: how often the true label may be outside of the node, in (0, 1).
        taxonomy: of the labels.
        link, min_size: as in `SetRule`; with a ``min_size``, answers may be more than one node.

    Example:
        >>> from shortlist.taxonomy import taxonomy_from_groups
        >>> trees = taxonomy_from_groups(["robur", "ilex", "ash"], {"genus": ["Quercus", "Quercus", "Fraxinus"]})
        >>> scores = torch.tensor([[0.9, 0.1, 0.0], [0.5, 0.4, 0.1], [0.4, 0.5, 0.1], [0.1, 0.1, 0.8]])
        >>> rule = DeepestNode(0.4, trees).fit(scores, torch.tensor([0, 1, 0, 2]), from_logits=False)
        >>> rule.predict_nodes(torch.tensor([[0.95, 0.05, 0.0], [0.4, 0.35, 0.25]])).to_list()
        [['robur'], ['Quercus']]

    References:
        Mortier, Hüllermeier, Dembczyński, Waegeman, "Set-valued prediction in hierarchical classification with
        constrained representation complexity", 2022; Gupta, Kuchibhotla, Ramdas, "Nested conformal prediction and
        quantile out-of-bag ensemble methods", 2022.
    """

    constraint: ClassVar[str] = "average error, with one node per answer"
    needs_probabilities = True

    def __init__(self, alpha: float, taxonomy: Taxonomy, *, link: Link = "softmax", min_size: int = 0) -> None:
        super().__init__(alpha, taxonomy, link=link, min_size=min_size)

    def _entry(self, block: Block, classes: Tensor) -> Tensor:
        path, masses = self._path(block)
        right = self.taxonomy.contains(path, classes[:, None]).sum(-1, keepdim=True)
        # The node with the true label is reached once the next one, without it, has too little mass.
        below = torch.nn.functional.pad(masses, (0, 1), value=-torch.inf)
        return -below.gather(1, right)[:, 0]

    def _set_at(self, block: Block, strict: Tensor) -> Tensor:
        path, masses = self._path(block)
        enough = (-masses < self.threshold) | (strict & (-masses == self.threshold))
        node = path.gather(1, (enough.sum(-1, keepdim=True) - 1).clamp(min=0))
        inside = torch.zeros_like(block.values, dtype=torch.bool)
        for ancestors in self.taxonomy.ancestor_table.to(node.device).unbind(1):
            inside = inside | (ancestors == node)
        return inside

    def _path(self, block: Block) -> tuple[Tensor, Tensor]:
        """The path from the root to the child with the largest mass, and so on, and the masses: each (rows, depth)."""
        masses = self.taxonomy.masses(block.marked().clamp(min=0.0))
        node = torch.full_like(masses[:, :1], self.taxonomy.root, dtype=torch.int64)
        path = [node]
        for level in self.taxonomy.levels:
            parents, children = level.parents.to(node.device), level.children.to(node.device)
            largest, which = masses[:, children].masked_fill(parents != node, -1.0).max(-1, keepdim=True)
            node = torch.where(largest >= 0, children[which], node)
            path.append(node)
        nodes = torch.cat(path, -1)
        return nodes, masses.gather(1, nodes)

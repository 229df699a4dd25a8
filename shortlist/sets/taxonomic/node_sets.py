"""From sets of labels to sets of nodes of a taxonomy and back."""

from __future__ import annotations

import torch
from torch import Tensor

from shortlist.labels import Numbers, read_numbers
from shortlist.sets.prediction_sets import PredictionSets
from shortlist.taxonomy import Taxonomy


def collapse(
    sets: PredictionSets, taxonomy: Taxonomy, *, depth: int | None = None, absent: Numbers | None = None
) -> PredictionSets:
    """Name the labels of each set by nodes of a taxonomy.

    By default the answer keeps its labels: nodes all of whose labels are in the set take the place of these labels, the
    largest such nodes, and of those with the same labels the most specific. On a tree no fewer nodes can name the
    set. On a DAG, they may overlap, and fewer might do.

    Args:
        sets: of labels.
        taxonomy: of these labels.
        depth: instead, replace each label by its ancestors that many steps below the root, such as 1 for the groups
            of a dataset; labels that are nearer to the root stay. The nodes then have more labels than the sets.
        absent: ``(rows, n)`` bool, labels that cannot be in the set of a row: a node needs only the others.

    Returns:
        Sets of nodes with the names of the taxonomy; the score of a node is the sum of those of its labels in the set.

    Example:
        >>> from shortlist.taxonomy import taxonomy_from_groups
        >>> trees = taxonomy_from_groups(["robur", "ilex", "ash"], {"genus": ["Quercus", "Quercus", "Fraxinus"]})
        >>> sets = PredictionSets.from_mask(torch.tensor([[True, True, False], [True, False, True]]))
        >>> collapse(sets, trees).to_list()
        [['Quercus'], ['robur', 'ash']]
        >>> collapse(sets, trees, depth=1).to_list()
        [['Quercus'], ['Quercus', 'Fraxinus']]
    """
    check_labels_of(taxonomy, sets.num_labels)
    shape = (len(sets), len(taxonomy))
    place, nodes = taxonomy.ancestors.of(sets.labels)
    keys, scores = sets.rows[place] * len(taxonomy) + nodes, sets.scores[place]
    keys, entry = keys.unique(return_inverse=True)
    total = scores.new_zeros(len(keys)).index_add(0, entry, scores)
    rows, nodes = keys // len(taxonomy), keys % len(taxonomy)
    if depth is None:
        inside = torch.bincount(entry, minlength=len(keys))
        chosen = _largest_full(keys, inside, _absent_below(rows, nodes, absent, sets, taxonomy), taxonomy)
    else:
        deepest = int(taxonomy.depths.max())
        if isinstance(depth, bool) or not isinstance(depth, int) or not 0 <= depth <= deepest:
            raise ValueError(f"`depth` must be an integer in [0, {deepest}]; got {depth!r}.")
        depths = taxonomy.depths[nodes]
        chosen = (depths == depth) | ((nodes < taxonomy.num_labels) & (depths < depth))
    return PredictionSets.from_entries(rows[chosen], nodes[chosen], total[chosen], shape, names=taxonomy.names)


def expand(sets: PredictionSets, taxonomy: Taxonomy) -> PredictionSets:
    """The labels at or below the nodes of each set, each once, with the best score of the nodes that hold it.

    The inverse of `collapse` where that keeps the labels; gives coverage and size of answers that name nodes.

    Example:
        >>> from shortlist.taxonomy import taxonomy_from_groups
        >>> trees = taxonomy_from_groups(["robur", "ilex", "ash"], {"genus": ["Quercus", "Quercus", "Fraxinus"]})
        >>> robur, ash, quercus = 0, 2, 3
        >>> nodes = PredictionSets.from_entries([0, 0, 1, 1], [robur, ash, quercus, ash], [0.5, 0.4, 0.6, 0.4], (2, 6))
        >>> expand(nodes, trees).to_list()
        [['robur', 'ash'], ['robur', 'ilex', 'ash']]
    """
    if sets.num_labels != len(taxonomy):
        raise ValueError(f"`sets` must be sets of the {len(taxonomy)} nodes; got {sets.num_labels}.")
    n = taxonomy.num_labels
    place, labels = taxonomy.labels_below.of(sets.labels)
    keys, entry = (sets.rows[place] * n + labels).unique(return_inverse=True)
    scores = sets.scores.new_full((len(keys),), -torch.inf).scatter_reduce(0, entry, sets.scores[place], "amax")
    shape = (len(sets), n)
    return PredictionSets.from_entries(keys // n, keys % n, scores, shape, names=taxonomy.names[:n])


def check_labels_of(taxonomy: Taxonomy, num_labels: int) -> None:
    """Raise unless a taxonomy is one of as many labels."""
    if not isinstance(taxonomy, Taxonomy):
        raise TypeError(f"`taxonomy` must be a Taxonomy; got {type(taxonomy).__name__}.")
    if taxonomy.num_labels != num_labels:
        raise ValueError(f"`taxonomy` must have the {num_labels} labels of the scores; it has {taxonomy.num_labels}.")


def _absent_below(
    rows: Tensor, nodes: Tensor, absent: Numbers | None, sets: PredictionSets, taxonomy: Taxonomy
) -> Tensor:
    """How many labels below each (row, node) cannot be in the set."""
    if absent is None:
        return torch.zeros_like(rows)
    absent, wanted = read_numbers(absent, name="absent").cpu(), (len(sets), taxonomy.num_labels)
    if absent.shape != wanted or absent.dtype != torch.bool:
        raise ValueError(f"`absent` must be bool {wanted}; got {absent.dtype} {tuple(absent.shape)}.")
    if not absent.any():
        return torch.zeros_like(rows)
    place, labels = taxonomy.labels_below.of(nodes)
    return torch.zeros_like(rows).index_add(0, place, absent[rows[place], labels].long())


def _largest_full(keys: Tensor, inside: Tensor, absent: Tensor, taxonomy: Taxonomy) -> Tensor:
    """Mask of the (row, node) keys, ascending, that name the sets; ``inside`` counts the labels in the set."""
    rows, nodes = keys // len(taxonomy), keys % len(taxonomy)
    full = inside + absent == taxonomy.sizes[nodes]
    # A parent with no more labels in the set than its child says less.
    place, parents = taxonomy.edges.of(nodes)
    above = torch.searchsorted(keys, rows[place] * len(taxonomy) + parents)
    vague = torch.zeros_like(full)
    vague[above[inside[above] == inside[place]]] = True
    specific = full & ~vague
    place, ancestors = taxonomy.ancestors.of(nodes)
    higher = specific[torch.searchsorted(keys, rows[place] * len(taxonomy) + ancestors)] & (ancestors != nodes[place])
    return specific & (torch.zeros_like(inside).index_add(0, place, higher.long()) == 0)

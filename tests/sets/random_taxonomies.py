"""Random trees and DAGs of labels, and what their nodes hold, from the definition."""

from __future__ import annotations

import random

from shortlist.taxonomy import Taxonomy


def random_taxonomy(seed: int, labels: int, *, extra: int = 0) -> Taxonomy:
    """Nodes are put above one to four others until one is left; ``extra`` edges make it a DAG."""
    draw = random.Random(seed)
    parents: list[set[int]] = [set() for _ in range(labels)]
    left = list(range(labels))
    while len(left) > 1 or len(parents) == labels:
        draw.shuffle(left)
        count = min(len(left), draw.randint(1 if len(parents) < 2 * labels else 2, 4))
        below, left = left[:count], left[count:]
        left.append(len(parents))
        for node in below:
            parents[node].add(len(parents))
        parents.append(set())
    for _ in range(extra):
        node = draw.randrange(len(parents) - 1)
        parents[node].add(draw.randrange(max(node + 1, labels), len(parents)))
    return Taxonomy(tuple(map(str, range(len(parents)))), tuple(tuple(sorted(p)) for p in parents), labels)


def labels_below(taxonomy: Taxonomy) -> list[set[int]]:
    """The labels at or below each node."""
    below: list[set[int]] = [{node} if node < taxonomy.num_labels else set() for node in range(len(taxonomy))]
    for node, parents in enumerate(taxonomy.parents):
        for parent in parents:
            below[parent] |= below[node]
    return below


def children(taxonomy: Taxonomy, node: int) -> list[int]:
    """Its children, ascending."""
    return [child for child, parents in enumerate(taxonomy.parents) if node in parents]

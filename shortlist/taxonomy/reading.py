"""Taxonomies from tables of parents, CSV files, networkx graphs and groups of labels."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from torch import Tensor

from shortlist.errors import InputError, reason
from shortlist.limits import read_whole
from shortlist.taxonomy.taxonomy import Taxonomy


class Partition(Protocol):
    """One group for each label, such as `shortlist.data.Groups`: -1 is no group."""

    @property
    def index(self) -> Tensor:
        """``(n,)`` int64."""
        ...

    @property
    def names(self) -> Sequence[str]:
        """The names of the groups."""
        ...


def taxonomy_from_parents(
    parents: Mapping[str, str | Iterable[str]] | Iterable[tuple[str, str]],
    *,
    labels: Sequence[str] | None = None,
    root: str = "anything",
    prune: bool = False,
) -> Taxonomy:
    """Make a taxonomy from a table of children and parents.

    Args:
        parents: a mapping from each child to its parent or parents, or (child, parent) pairs.
        labels: the labels in the order of the scores; by default the nodes without children, as they come.
        root: the name of a node that is put above all if several nodes have no parent.
        prune: leave out nodes without a label below them, such as species that the model does not know. Otherwise they
            are refused.

    Raises:
        ValueError: for a cycle, a label without a parent, a label with children, or a leaf that is no label.

    Example:
        >>> pairs = [("robur", "Quercus"), ("ilex", "Quercus"), ("excelsior", "Fraxinus")]
        >>> taxonomy_from_parents(pairs, labels=["excelsior", "ilex", "robur"]).names
        ('excelsior', 'ilex', 'robur', 'Fraxinus', 'Quercus', 'anything')
    """
    above: dict[str, list[str]] = {}
    children: dict[str, int] = {}
    for child, parent in _pairs(parents):
        if parent not in above.setdefault(child, []):
            above[child].append(parent)
            children[parent] = children.get(parent, 0) + 1
    nodes = dict.fromkeys([*above, *children])
    labels = [node for node in nodes if node not in children] if labels is None else [str(name) for name in labels]
    if not labels:
        _refuse_cycle(above, list(nodes))
        raise ValueError("`labels` must name at least one label; got none.")
    _check_labels(labels, above, children)
    above = _kept(above, children, labels, prune=prune)
    tops = [node for node in dict.fromkeys(p for list_ in above.values() for p in list_) if node not in above]
    if len(tops) > 1:
        if root in nodes:
            raise ValueError(f"`root` must be a new name, since {len(tops)} nodes have no parent; got {root!r}.")
        above |= {top: [root] for top in tops}
    order = _children_first(above, labels)
    number = {name: i for i, name in enumerate(order)}
    found = tuple(tuple(number[parent] for parent in above.get(name, ())) for name in order)
    return Taxonomy(tuple(order), found, len(labels))


def taxonomy_from_csv(path: str | Path, *, labels: Sequence[str] | None = None, prune: bool = False) -> Taxonomy:
    """Read a taxonomy from a CSV file with two columns: child and parent; the first line is a heading.

    Args:
        path: the file; a child with several parents has several lines.
        labels, prune: as in `taxonomy_from_parents`.

    Raises:
        InputError: names the file and what is wrong with it.
    """
    try:
        lines = csv.reader(io.StringIO(read_whole(Path(path)).decode("utf-8-sig")))
        rows = [(lines.line_num, row) for row in lines if row]
    except OSError as error:
        raise InputError(f"`{path}` cannot be read: {error.strerror}.") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"`{path}` is no CSV file in UTF-8: {error}.") from error
    for line, row in rows:
        if len(row) != 2 or not all(row):
            raise InputError(f"`{path}` line {line} must have two columns, child and parent; got {row!r:.60}.")
    try:
        return taxonomy_from_parents([(row[0], row[1]) for _, row in rows[1:]], labels=labels, prune=prune)
    except ValueError as error:
        raise InputError(f"`{path}`: {reason(error)}.") from error


def taxonomy_from_networkx(graph: Any, *, labels: Sequence[str] | None = None, prune: bool = False) -> Taxonomy:
    """Make a taxonomy from a directed graph of networkx whose edges point from parents to children.

    Args:
        graph: anything with ``is_directed()`` and ``edges()``; nodes are named by their string form.
        labels, prune: as in `taxonomy_from_parents`.
    """
    if not graph.is_directed():
        raise ValueError("`graph` must be directed, from parents to children.")
    pairs = [(str(child), str(parent)) for parent, child in graph.edges()]
    return taxonomy_from_parents(pairs, labels=labels, prune=prune)


def taxonomy_from_groups(
    labels: Sequence[str],
    groups: Mapping[str, Partition | Sequence[Hashable]],
    *,
    root: str = "anything",
) -> Taxonomy:
    """Make a tree from groups of labels, such as the genus and the family of each species.

    Args:
        labels: the names of the labels.
        groups: from the coarsest to the finest, by what they are: for each label its group, None for none; or `Groups`
            of ``shortlist.data``. A label without a group belongs to the next coarser one, or to the root. A group
            that has the name of a label or of a coarser group is called "name (kind)".
        root: the name of the root.

    Raises:
        ValueError: if a group is not inside one coarser group.

    Example:
        >>> taxonomy_from_groups(["robur", "ilex", "excelsior"], {"genus": ["Quercus", "Quercus", "Fraxinus"]}).names
        ('robur', 'ilex', 'excelsior', 'Quercus', 'Fraxinus', 'anything')
    """
    taken, above = {root, *labels}, [root] * len(labels)
    parents: dict[str, str] = {}
    for kind, given in groups.items():
        members = _members(given)
        if len(members) != len(labels):
            raise ValueError(f"`groups` {kind!r} must have an entry for each of {len(labels)} labels.")
        called = {name: f"{name} ({kind})" if name in taken else name for name in members if name is not None}
        taken.update(called.values())
        for i, name in enumerate(members):
            if name is None:
                continue
            node, coarser = called[name], above[i]
            if parents.setdefault(node, coarser) != coarser:
                raise ValueError(
                    f"`groups` {kind!r}: {node!r} must be in one group, not {parents[node]!r} and {coarser!r}."
                )
            above[i] = node
    return taxonomy_from_parents(dict(zip(labels, above, strict=True)) | parents, labels=labels, root=root)


def _members(given: Any) -> list[str | None]:
    if hasattr(given, "index") and hasattr(given, "names"):
        return [None if group < 0 else given.names[group] for group in given.index.tolist()]
    return [None if group is None else str(group) for group in given]


def _pairs(parents: Mapping[str, str | Iterable[str]] | Iterable[tuple[str, str]]) -> Iterable[tuple[str, str]]:
    if not isinstance(parents, Mapping):
        yield from ((str(child), str(parent)) for child, parent in parents)
        return
    for child, above in parents.items():
        yield from ((str(child), str(parent)) for parent in ([above] if isinstance(above, str) else above))


def _check_labels(labels: Sequence[str], above: Mapping[str, Any], children: Mapping[str, int]) -> None:
    if len(set(labels)) < len(labels):
        raise ValueError(f"`labels` must differ; {Counter(labels).most_common(1)[0][0]!r} occurs twice.")
    for label in labels:
        if label in children:
            raise ValueError(f"a label must be a leaf; {label!r} has children: give it one of its own as a label.")
        if label not in above:
            raise ValueError(f"a label must have a parent; {label!r} has none.")


def _kept(
    above: dict[str, list[str]], children: dict[str, int], labels: Sequence[str], *, prune: bool
) -> dict[str, list[str]]:
    """The parents of all nodes with a label at or below them."""
    known = set(labels)
    unknown = [node for node in above if node not in children and node not in known]
    if unknown and not prune:
        more = f", and {len(unknown) - 1:,} others" if len(unknown) > 1 else ""
        raise ValueError(f"every leaf must be a label; {unknown[0]!r} is none{more}; `prune` leaves such leaves out.")
    if not unknown:
        return above
    reached, waiting = set(labels), list(labels)
    while waiting:
        for parent in above.get(waiting.pop(), ()):
            if parent not in reached:
                reached.add(parent)
                waiting.append(parent)
    return {node: list_ for node, list_ in above.items() if node in reached}


def _children_first(above: Mapping[str, Sequence[str]], labels: Sequence[str]) -> list[str]:
    """All nodes, labels first and each inner node after its children."""
    missing: dict[str, int] = {}
    for list_ in above.values():
        for parent in list_:
            missing[parent] = missing.get(parent, 0) + 1
    order = list(labels)
    for node in order:  # grows
        for parent in above.get(node, ()):
            missing[parent] -= 1
            if missing[parent] == 0:
                order.append(parent)
    _refuse_cycle(above, [node for node, count in missing.items() if count])
    return order


def _refuse_cycle(above: Mapping[str, Sequence[str]], left: Sequence[str]) -> None:
    """Raise if nodes are left of which every one has a child that is left."""
    if not left:
        return
    inside, node, path = set(left), left[0], {}
    below = {parent: child for child, list_ in above.items() if child in inside for parent in list_}
    while node not in path:
        path[node] = len(path)
        node = below[node]
    circle = [node, *reversed(list(path)[path[node] :])]
    shown = [*map(repr, circle[:4]), *(["..."] if len(circle) > 5 else []), *map(repr, circle[4:][-1:])]
    raise ValueError(f"a taxonomy must have no cycle; got {' → '.join(shown)}.")

"""A dataset: inputs, labels and their names, whatever format they were read from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from operator import index
from typing import Any, NamedTuple, SupportsIndex

import numpy as np
import torch
from torch import Tensor

from shortlist.data.checks import check_range, integer_tensor
from shortlist.data.groups import Groups, check_unique
from shortlist.data.inputs import Inputs
from shortlist.data.target_rows import as_csr, check_labels, csr, label_pairs, take_rows
from shortlist.targets import target_form
from shortlist.taxonomy import Taxonomy, taxonomy_from_groups


class Batch(NamedTuple):
    """Some rows of a dataset."""

    inputs: Any  # a tensor, a sparse tensor, a list of texts, ...: see `Inputs`
    targets: Tensor
    rows: Tensor

    def __reduce__(self) -> Any:
        """Send sparse tensors to another process as their components: torch would warn there about the layout."""
        return _rebuilt, (Batch, *map(_components, self))


class Example(NamedTuple):
    """One row, with names, for people to read."""

    input: Any
    labels: tuple[str, ...]
    unknown: tuple[str, ...]
    split: str | None


@dataclass(frozen=True, eq=False)
class Dataset:
    """Rows with inputs and labels.

    Args:
        inputs: the rows, read on request; see `Inputs`.
        targets: the labels of all rows, in one of the forms of :mod:`shortlist.targets`.
        label_names: the names of the labels, all different.
        label_groups: partitions of the labels, such as ``superclass`` or ``genus``.
        row_groups: partitions of the rows, such as ``source``, ``image`` or ``year``.
        split: the part of each row, usually ``train``, ``val`` or ``test``; None if there are no parts.
        clean_targets: the labels before noise was added or labels were hidden, for evaluation; None if ``targets`` are
            clean.
        name: for headings.

    Example:
        >>> from shortlist.data import Dataset, Features, Groups
        >>> flowers = Dataset(
        ...     Features(torch.eye(3)),
        ...     torch.tensor([0, 1, 1]),
        ...     ("daisy", "clover"),
        ...     split=Groups.of(["train", "train", "test"]),
        ... )
        >>> flowers
        <Dataset '': 3 rows of features (1 test, 2 train), 2 labels>
        >>> flowers[2].labels
        ('clover',)
        >>> flowers.batch([2, 0]).targets
        tensor([1, 0])
    """

    inputs: Inputs
    targets: Tensor
    label_names: tuple[str, ...]
    label_groups: Mapping[str, Groups] = field(default_factory=dict)
    row_groups: Mapping[str, Groups] = field(default_factory=dict)
    split: Groups | None = None
    clean_targets: Tensor | None = None
    name: str = ""

    def __post_init__(self) -> None:
        if not hasattr(self.inputs, "batch") or not hasattr(self.inputs, "take"):
            raise TypeError(f"`inputs` must be Inputs, such as Features or Texts; got {type(self.inputs).__name__}.")
        rows = len(self.inputs)
        check_unique(self.label_names, "label_names")
        for argument, target in (("targets", self.targets), ("clean_targets", self.clean_targets)):
            if target is None:
                continue
            target_form(target, self.num_labels, name=argument)
            if len(target) != rows:
                raise ValueError(f"`{argument}` must have a row for each of {rows} inputs; got {len(target)}.")
            check_labels(target, self.num_labels, name=argument)
            object.__setattr__(self, argument, as_csr(target))  # Otherwise every batch would convert all rows.
        _check_groups("label_groups", self.label_groups, self.num_labels, "labels")
        _check_groups("row_groups", self.row_groups, rows, "rows")
        if self.split is not None and not isinstance(self.split, Groups):
            raise TypeError(f"`split` must be Groups; got {type(self.split).__name__}.")
        if self.split is not None and len(self.split) != rows:
            raise ValueError(f"`split` must have a member for each of {rows} rows; got {len(self.split)}.")

    def __reduce__(self) -> Any:
        """Send sparse labels to another process as their components, like `Batch`."""
        return _rebuilt, (Dataset, *(_components(getattr(self, each.name)) for each in fields(self)))

    def __repr__(self) -> str:
        """Say in one line what the dataset holds; the fields themselves may be millions of rows long."""
        parts = () if self.split is None else zip(self.split.names, self.split.counts().tolist(), strict=True)
        sizes = ", ".join(f"{count:,} {name}" for name, count in parts if count)
        split = f" ({sizes})" if sizes else ""
        return f"<Dataset {self.name!r}: {len(self):,} rows of {self.inputs.kind}{split}, {self.num_labels:,} labels>"

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.inputs)

    @property
    def num_labels(self) -> int:
        """The number of labels, n."""
        return len(self.label_names)

    @property
    def true_targets(self) -> Tensor:
        """The labels to evaluate on: the clean ones if labels were changed, else ``targets``."""
        return self.targets if self.clean_targets is None else self.clean_targets

    def batch(self, rows: Tensor | np.ndarray | Sequence[int]) -> Batch:
        """Read some rows, for a model; ``DataLoader(dataset, sampler=BatchSampler(...), batch_size=None)`` calls it."""
        rows = self._rows(rows)
        return Batch(self.inputs.batch(rows), take_rows(self.targets, rows), rows)

    def __getitem__(self, row: SupportsIndex | slice | Sequence[int] | Tensor) -> Any:
        """Read one row as an `Example`, or several as a `Batch`."""
        if isinstance(row, slice):
            return self.batch(range(*row.indices(len(self))))
        if isinstance(row, Sequence | Tensor | np.ndarray):
            return self.batch(row)
        row = index(row)
        if not -len(self) <= row < len(self):
            raise IndexError(f"`row` must lie in [{-len(self)}, {len(self) - 1}]; got {row}.")
        position = torch.tensor([row % len(self)])
        _, labels, present = label_pairs(take_rows(self.targets, position), self.num_labels)
        names = [self.label_names[label] for label in labels.tolist()]
        known = present.tolist()
        part = -1 if self.split is None else int(self.split.index[position])
        return Example(
            self.inputs.batch(position)[0],
            tuple(name for name, sure in zip(names, known, strict=True) if sure),
            tuple(name for name, sure in zip(names, known, strict=True) if not sure),
            self.split.names[part] if self.split is not None and part >= 0 else None,
        )

    def subset(self, rows: Tensor | np.ndarray | Sequence[int]) -> Dataset:
        """The dataset restricted to some rows, in the given order; reads no inputs."""
        rows = self._rows(rows)
        return replace(
            self,
            inputs=self.inputs.take(rows),
            targets=take_rows(self.targets, rows),
            row_groups={name: groups.take(rows) for name, groups in self.row_groups.items()},
            split=None if self.split is None else self.split.take(rows),
            clean_targets=None if self.clean_targets is None else take_rows(self.clean_targets, rows),
        )

    def part(self, name: str) -> Dataset:
        """The rows of one part of the split."""
        return self.subset(self.part_rows(name))

    def part_rows(self, name: str) -> Tensor:
        """Ascending indices of the rows of one part; without a split, all rows are train."""
        if self.split is not None:
            return self.split.members(name)
        if name != "train":
            raise ValueError(f"`name` must be 'train' if the dataset has no split; got {name!r}.")
        return torch.arange(len(self))

    def label_group(self, name: str) -> Groups:
        """One of the partitions of the labels; ValueError lists them if the name is unknown."""
        return _named("label_groups", self.label_groups, name)

    def row_group(self, name: str) -> Groups:
        """One of the partitions of the rows; ValueError lists them if the name is unknown."""
        return _named("row_groups", self.row_groups, name)

    def taxonomy(self, *names: str, root: str = "anything") -> Taxonomy:
        """The labels below their groups, for rules that may answer with a group.

        Args:
            names: of `label_groups`, from the coarsest to the finest; all of them by default.
            root: the name of the node above all.

        Example:
            >>> from shortlist.data import Dataset, Features, Groups
            >>> genus = {"genus": Groups.of(["Quercus", "Quercus", "Fraxinus"])}
            >>> plants = Dataset(Features(torch.eye(3)), torch.arange(3), ("robur", "ilex", "excelsior"), genus)
            >>> plants.taxonomy()
            <Taxonomy: 3 labels below 3 inner nodes, a tree of depth 2>
        """
        groups = {name: self.label_group(name) for name in names or self.label_groups}
        if not groups:
            raise ValueError("the dataset must have groups of labels for a taxonomy; it has none.")
        return taxonomy_from_groups(self.label_names, groups, root=root)

    def label_counts(self, part: str | None = None) -> Tensor:
        """The number of rows with each label, ``(n,)`` int64; in one part, or in all rows."""
        targets = self.targets if part is None else take_rows(self.targets, self.part_rows(part))
        _, labels, present = label_pairs(targets, self.num_labels)
        return torch.bincount(labels[present], minlength=self.num_labels)

    def _rows(self, rows: Tensor | np.ndarray | Sequence[int]) -> Tensor:
        rows = integer_tensor("rows", rows)
        check_range("rows", rows, len(self), error=IndexError)
        return rows


class _Components(NamedTuple):
    """The components of a sparse CSR tensor."""

    crow: Tensor
    columns: Tensor
    values: Tensor
    width: int


def _components(value: Any) -> Any:
    if isinstance(value, Tensor) and value.layout == torch.sparse_csr:
        return _Components(value.crow_indices(), value.col_indices(), value.values(), value.shape[1])
    return value


def _rebuilt(kind: Callable[..., Any], *values: Any) -> Any:
    return kind(*(csr(*value) if isinstance(value, _Components) else value for value in values))


def _named(argument: str, groups: Mapping[str, Groups], name: str) -> Groups:
    if name not in groups:
        known = ", ".join(sorted(groups)) or "nothing"
        raise ValueError(f"`{argument}` of the dataset must have {name!r}; it has {known}.")
    return groups[name]


def _check_groups(argument: str, groups: Mapping[str, Groups], size: int, of: str) -> None:
    for name, group in groups.items():
        if not isinstance(group, Groups):
            raise TypeError(f"`{argument}` {name!r} must be Groups; got {type(group).__name__}.")
        if len(group) != size:
            raise ValueError(f"`{argument}` {name!r} must have a member for each of {size} {of}; got {len(group)}.")

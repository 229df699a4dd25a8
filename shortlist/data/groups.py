"""Named partitions: which superclass a label has, which source or split part a row has."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Groups:
    """One group for each member.

    Args:
        index: ``(members,)`` int64, the group of each member, from 0; -1 for a member without a group.
        names: the names of the groups, all different.

    Example:
        >>> genus = Groups(torch.tensor([0, 0, 1]), ("Fedia", "Pereskia"))
        >>> len(genus), genus.counts().tolist(), genus.members("Fedia").tolist()
        (3, [2, 1], [0, 1])
    """

    index: Tensor
    names: tuple[str, ...]

    def __post_init__(self) -> None:
        if not isinstance(self.index, Tensor):
            raise TypeError(f"`index` must be a tensor; got {type(self.index).__name__}.")
        if self.index.dtype != torch.int64 or self.index.dim() != 1:
            raise TypeError(
                f"`index` must be int64 with 1 dimension; got {self.index.dtype} with {self.index.dim()} dimensions."
            )
        if len(self.index):
            low, high = (int(bound) for bound in self.index.aminmax())
            if low < -1 or high >= len(self.names):
                raise ValueError(f"`index` must lie in [-1, {len(self.names) - 1}]; got {low if low < -1 else high}.")
        check_unique(self.names, "names")

    @classmethod
    def of(cls, values: Iterable[Hashable], *, order: Sequence[str] = ()) -> Groups:
        """Group members by the string form of their values; None means no group.

        Args:
            values: one value per member.
            order: names that come first, in this order, if any member has them; the others are sorted.

        Example:
            >>> Groups.of(["test", "train", None, "train"], order=("train", "val", "test"))
            Groups(index=tensor([ 1,  0, -1,  0]), names=('train', 'test'))
        """
        texts = [None if value is None else str(value) for value in values]
        found = {text for text in texts if text is not None}
        names = [name for name in order if name in found] + sorted(found.difference(order))
        number = {name: i for i, name in enumerate(names)}
        index = [-1 if text is None else number[text] for text in texts]
        return cls(torch.tensor(index, dtype=torch.int64), tuple(names))

    @classmethod
    def of_sizes(cls, sizes: Sequence[int], names: Sequence[str]) -> Groups:
        """Consecutive groups of the given sizes.

        Example:
            >>> Groups.of_sizes([2, 1], ["train", "test"])
            Groups(index=tensor([0, 0, 1]), names=('train', 'test'))
        """
        index = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes, dtype=torch.int64))
        return cls(index, tuple(names))

    def __len__(self) -> int:
        """Return the number of members."""
        return len(self.index)

    def counts(self) -> Tensor:
        """How many members each group has, ``(groups,)`` int64."""
        return torch.bincount(self.index[self.index >= 0], minlength=len(self.names))

    def members(self, name: str) -> Tensor:
        """Ascending indices of the members of a group, int64; ValueError for an unknown name."""
        if name not in self.names:
            raise ValueError(f"`name` must be one of {', '.join(self.names) or 'no names at all'}; got {name!r}.")
        return (self.index == self.names.index(name)).nonzero().squeeze(-1)

    def take(self, members: Tensor) -> Groups:
        """The groups of some members, in the given order; all names stay, so a group may become empty."""
        return Groups(self.index[members], self.names)

    def compact(self) -> Groups:
        """The same without empty groups."""
        full = (self.counts() > 0).nonzero().squeeze(-1)
        number = torch.full((len(self.names) + 1,), -1)  # The last entry is for members without a group.
        number[full] = torch.arange(len(full))
        return Groups(number[self.index], tuple(self.names[group] for group in full.tolist()))


def first_repeat(values: Sequence[Hashable]) -> tuple[int, int] | None:
    """The positions of the first value that occurs twice; None if all differ.

    Example:
        >>> first_repeat(["oak", "ash", "oak", "ash"])
        (0, 2)
    """
    seen: dict[Hashable, int] = {}
    for position, value in enumerate(values if len(set(values)) < len(values) else ()):
        if seen.setdefault(value, position) != position:
            return seen[value], position
    return None


def check_unique(names: Sequence[str], argument: str, *, where: str = "", error: type[ValueError] = ValueError) -> None:
    """Raise an error that names the first repeated name.

    Args:
        names: what must differ.
        argument: what the names are called in the error.
        where: names the file that they come from.
        error: the class to raise; `shortlist.errors.InputError` for names from a file.
    """
    repeat = first_repeat(names)
    if repeat is not None:
        prefix = f"{where}: " if where else ""
        name = names[repeat[0]]
        raise error(f"{prefix}`{argument}` must differ; positions {repeat[0]} and {repeat[1]} are both {name!r}.")

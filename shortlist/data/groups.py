"""A partition by name: which superclass a label has, which source or split a row has."""

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
        names: the name of each group, each once.

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
        refuse_repeated(self.names, "names")

    @classmethod
    def of(cls, values: Iterable[Hashable], *, order: Sequence[str] = ()) -> Groups:
        """Group members by what ``str`` makes of their value; None is no group.

        Args:
            values: a value for each member.
            order: names that come first, in this order, if any member has them; the rest is sorted.

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

    def __len__(self) -> int:
        """Return the number of members."""
        return len(self.index)

    def counts(self) -> Tensor:
        """How many members each group has, ``(groups,)`` int64."""
        return torch.bincount(self.index[self.index >= 0], minlength=len(self.names))

    def members(self, name: str) -> Tensor:
        """Ascending numbers of the members of a group, int64; ValueError for a name that is none."""
        if name not in self.names:
            raise ValueError(f"`name` must be one of {', '.join(self.names) or 'no names at all'}; got {name!r}.")
        return (self.index == self.names.index(name)).nonzero().squeeze(-1)

    def take(self, members: Tensor) -> Groups:
        """The groups of some members, in their order; names stay, so a group may become empty."""
        return Groups(self.index[members], self.names)

    def compact(self) -> Groups:
        """The same without empty groups."""
        full = (self.counts() > 0).nonzero().squeeze(-1)
        number = torch.full((len(self.names) + 1,), -1)  # The last entry is for members without a group.
        number[full] = torch.arange(len(full))
        return Groups(number[self.index], tuple(self.names[group] for group in full.tolist()))


def refuse_repeated(names: Sequence[str], argument: str) -> None:
    """Raise ValueError for the first name that stands twice."""
    if len(set(names)) == len(names):
        return
    seen: dict[str, int] = {}
    for place, name in enumerate(names):
        if name in seen:
            raise ValueError(f"`{argument}` must differ; places {seen[name]} and {place} are both {name!r}.")
        seen[name] = place

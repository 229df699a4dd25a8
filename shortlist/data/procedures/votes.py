"""Labels from a crowd: votes weighted by the experience of the users."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from shortlist.data.checks import integer_tensor
from shortlist.tensors import check_size

_MAX_ID_PER_VOTE = 1000


class VoteResult(NamedTuple):
    """The labels that a crowd gives to items."""

    labels: Tensor  # (items,) int64; -1 without votes
    support: Tensor  # (items,) float64, the sum of the weights behind the label
    valid: Tensor  # (items,) bool: the support passes the threshold
    user_weights: Tensor  # (users,) float64
    converged: bool  # False if weights and labels still changed in the last round


def vote_weight(n: Tensor | float, *, b0: float = math.log(2.1)) -> Tensor:
    r"""Weight of a user, :math:`w = n^{0.5} - n^{0.2} + b_0`, increasing from n = 1 on.

    Args:
        n: species observed plus distinct labels proposed, integers from 0.
        b0: the weight of a beginner. The thesis gives no value; log 2.1 was published later by the platform's authors.

    Example:
        >>> vote_weight(torch.tensor([1, 100, 10000]))
        tensor([ 0.7419,  8.2301, 94.4324], dtype=torch.float64)

    References:
        Garcin, "Set-valued classification", 2023, section 3.8.1; Lefort et al., "Cooperative learning of Pl@ntNet's
        artificial intelligence algorithm", 2024.
    """
    n = torch.as_tensor(n).to(torch.float64)
    if bool((n < 0).any()):
        raise ValueError(f"`n` must be at least 0; got {n.min().item():g}.")
    return n**0.5 - n**0.2 + b0


def aggregate_votes(
    items: Tensor | Sequence[int],
    users: Tensor | Sequence[int],
    labels: Tensor | Sequence[int],
    *,
    authors: Tensor | Sequence[int] | None = None,
    theta: float = 2.0,
    b0: float = math.log(2.1),
    max_rounds: int = 100,
) -> VoteResult:
    r"""Find the label of each item by a weighted majority, and whether it is valid.

    .. math:: \hat y_i = \arg\max_k \sum_{u} w_u [y_i^u = k], \qquad
        \text{valid if } \sum_u w_u [y_i^u = \hat y_i] > \theta

    The weight of a user grows with n: the number of species for which they are the author of a valid item, plus the
    number of distinct labels that they proposed. Validity depends on the weights in turn, so the two are computed
    alternately, starting from "nothing is valid", until nothing changes.

    Args:
        items: ``(votes,)`` the item of each vote, from 0.
        users: ``(votes,)`` the user of each vote, from 0; a user votes once per item.
        labels: ``(votes,)`` the label of each vote, from 0.
        authors: ``(items,)`` the author of each item, -1 if unknown; None if all are unknown.
        theta: the threshold that the support must exceed.
        b0: as in `vote_weight`.
        max_rounds: after how many rounds to give up.

    Returns:
        Labels (the smallest index among those with the same support), support, validity and weights.

    Example:
        >>> result = aggregate_votes([0, 0, 0, 1], [0, 1, 2, 0], [4, 4, 7, 7], theta=1.4)
        >>> result.labels, result.valid
        (tensor([4, 7]), tensor([ True, False]))
    """
    item, user, label = (_numbers(name, x) for name, x in (("items", items), ("users", users), ("labels", labels)))
    if not len(item) == len(user) == len(label):
        raise ValueError(
            f"`items`, `users` and `labels` must have one length; got {len(item)}, {len(user)} and {len(label)}."
        )
    author = np.full(int(item.max()) + 1 if len(item) else 0, -1) if authors is None else _authors(authors, item)
    _check_one_vote(item, user)
    check_size("max_rounds", max_rounds)
    num_users = max([0, *(int(x.max()) + 1 for x in (user, author) if len(x))])
    # Each proposed (item, label) is a candidate; votes refer to candidates.
    candidates, candidate = np.unique(np.stack([item, label]), axis=1, return_inverse=True)
    candidate = candidate.reshape(-1)
    proposed = np.unique(np.stack([user, label]), axis=1)
    distinct = np.bincount(proposed[0], minlength=num_users)
    observed = np.zeros(num_users, dtype=np.int64)
    chosen, support, weight, valid = np.empty(0, dtype=np.int64), np.empty(0), np.empty(0), np.empty(0, dtype=bool)
    converged = False
    for _ in range(max_rounds):
        weight = vote_weight(torch.from_numpy(distinct + observed), b0=b0).numpy()
        sums = np.bincount(candidate, weights=weight[user], minlength=candidates.shape[1])
        chosen, support = _winners(candidates, sums, len(author))
        valid = _passes(support, theta) & (chosen >= 0)
        before, observed = observed, _species_observed(author, chosen, valid, num_users)
        converged = np.array_equal(observed, before)
        if converged:
            break
    return VoteResult(
        torch.from_numpy(chosen),
        torch.from_numpy(support),
        torch.from_numpy(valid),
        torch.from_numpy(weight),
        converged,
    )


def _passes(support: np.ndarray, theta: float) -> np.ndarray:
    """Which sums exceed the threshold by more than rounding errors."""
    return support > theta + 1e-12 * np.maximum(np.abs(support), abs(theta))


def _numbers(name: str, values: Tensor | Sequence[int]) -> np.ndarray:
    array = integer_tensor(name, values).numpy()
    if len(array) and array.min() < 0:
        raise ValueError(f"`{name}` vote {int(np.argmin(array))}: must be at least 0; got {array.min()}.")
    # Results have an entry for every number up to the largest, so database ids would fill the memory.
    if len(array) and array.max() > _MAX_ID_PER_VOTE * (len(array) + 1000):
        raise ValueError(f"`{name}` must be numbered from 0 without large gaps; got {array.max()}.")
    return array


def _authors(authors: Tensor | Sequence[int], item: np.ndarray) -> np.ndarray:
    author = torch.as_tensor(authors, dtype=torch.int64).numpy()
    if author.ndim != 1 or (len(item) and item.max() >= len(author)):
        raise ValueError(f"`authors` must have an entry for each item; got shape {author.shape}.")
    return author


def _check_one_vote(item: np.ndarray, user: np.ndarray) -> None:
    order = np.lexsort((user, item))
    again = np.flatnonzero((np.diff(item[order]) == 0) & (np.diff(user[order]) == 0))
    if len(again):
        first, second = sorted(order[again[0] : again[0] + 2].tolist())
        raise ValueError(
            f"`users` must vote once per item; votes {first} and {second} are both of user {user[first]} "
            f"for item {item[first]}."
        )


def _winners(candidates: np.ndarray, sums: np.ndarray, num_items: int) -> tuple[np.ndarray, np.ndarray]:
    """The candidate of each item with the largest sum."""
    item, label = candidates
    # Sums of the same weights in another order may differ in the last bits.
    order = np.lexsort((label, -np.round(sums, 9), item))
    first = np.ones(len(order), dtype=bool)
    first[1:] = item[order][1:] != item[order][:-1]
    best = order[first]
    chosen, support = np.full(num_items, -1, dtype=np.int64), np.zeros(num_items)
    chosen[item[best]], support[item[best]] = label[best], sums[best]
    return chosen, support


def _species_observed(author: np.ndarray, chosen: np.ndarray, valid: np.ndarray, num_users: int) -> np.ndarray:
    """For each user, the number of distinct labels among their valid items."""
    counted = valid & (author >= 0)
    pairs = np.unique(np.stack([author[counted], chosen[counted]]), axis=1)
    return np.bincount(pairs[0], minlength=num_users)

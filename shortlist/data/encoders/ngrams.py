"""N-grams of words, and of the characters within words, counted as sparse matrices.

Words are looked up one by one; everything else is arithmetic on whole arrays. An n-gram is a pair of the (n-1)-gram at
the same place and the word that follows it, so it has an integer code. The characters of a word do not depend on the
text around it: the counts of a corpus are (texts x distinct words) @ (distinct words x character n-grams).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from shortlist.extras import require

# Two letters or digits at least, as in scikit-learn.
_WORD = re.compile(r"\b\w\w+\b")
_TEXTS = 4096


def frequent_ngrams(texts: Sequence[str], longest: int, min_count: int) -> dict[str, int]:
    """Return in how many texts each n-gram of up to ``longest`` words occurs, if that is at least ``min_count``.

    Example:
        >>> frequent_ngrams(["a red rose", "red rose", "red oak"], 2, 2)
        {'red': 3, 'rose': 2, 'red rose': 2}
    """
    index: dict[str, int] = {}
    words, text_of = _read_words(texts, index, new=True)
    names = list(index)
    found: dict[str, int] = {}
    nodes, shorter = words, names
    for length in range(1, longest + 1):
        if length > 1:
            nodes = _codes(nodes, words, text_of, length, len(index))
        present = nodes >= 0
        codes, inverse = np.unique(nodes[present], return_inverse=True)
        in_text = np.sort(inverse * np.int64(len(texts)) + text_of[present])
        first = np.diff(in_text, prepend=-1) > 0
        counts = np.bincount(in_text[first] // max(len(texts), 1), minlength=len(codes))
        kept = counts >= min_count
        numbers = np.cumsum(kept) - 1
        nodes = nodes.copy()
        nodes[present] = np.where(kept[inverse], numbers[inverse], -1)
        # A code is the number of a kept n-gram that is one word shorter, and the word that follows it.
        before, last = np.divmod(codes[kept], max(len(index), 1))
        pairs = zip(before.tolist(), last.tolist(), strict=True)
        shorter = [names[w] if length == 1 else f"{shorter[b]} {names[w]}" for b, w in pairs]
        found |= dict(zip(shorter, counts[kept].tolist(), strict=True))
        if length == 1:
            words = np.where(nodes >= 0, words, -1)
    return found


class NgramCounter:
    """Counts given n-grams of words.

    Args:
        terms: the n-grams, words separated by single spaces; term j is counted in column j.

    Example:
        >>> NgramCounter(["red", "red rose"])(["Red, red rose", "oak"]).toarray()
        array([[2., 1.],
               [0., 0.]], dtype=float32)
    """

    def __init__(self, terms: Sequence[str]) -> None:
        self.width = len(terms)
        self.index: dict[str, int] = {}
        split = [term.split(" ") for term in terms]
        for words in split:
            for word in words:
                self.index.setdefault(word, len(self.index))
        # Levels of a trie: sorted codes of the n-grams and of the beginnings of longer ones, and their columns or -1.
        self._levels: list[tuple[np.ndarray, np.ndarray]] = []
        nodes: dict[tuple[int, ...], int] = {(): 0}
        paths = [tuple(self.index[word] for word in words) for words in split]
        column_of = {path: column for column, path in enumerate(paths)}
        for length in range(1, max(map(len, paths), default=0) + 1):
            below = sorted(
                {path[:length] for path in paths if len(path) >= length},
                key=lambda path: (nodes[path[:-1]], path[-1]),
            )
            codes = [nodes[path[:-1]] * len(self.index) + path[-1] for path in below]
            columns = [column_of.get(path, -1) for path in below]
            nodes = {path: node for node, path in enumerate(below)}
            self._levels.append((np.array(codes, dtype=np.int64), np.array(columns, dtype=np.int64)))

    def __call__(self, texts: Sequence[str]) -> Any:
        """Return the counts, a scipy CSR matrix ``(texts, terms)`` float32."""
        words, text_of = _read_words(texts, self.index, new=False)
        nodes = np.where(words >= 0, 0, -1)
        rows, columns = [], []
        for length, (codes, column_of) in enumerate(self._levels, start=1):
            found = words if length == 1 else _codes(nodes, words, text_of, length, len(self.index))
            place = np.searchsorted(codes, found).clip(max=len(codes) - 1)
            nodes = np.where((found >= 0) & (codes[place] == found), place, -1)
            column = np.where(nodes >= 0, column_of[nodes], -1)
            rows.append(text_of[column >= 0])
            columns.append(column[column >= 0])
        return _counts(rows, columns, (len(texts), self.width))


def frequent_pieces(texts: Sequence[str], lengths: tuple[int, int], min_count: int) -> dict[str, int]:
    """Return in how many texts each character n-gram within words occurs, if that is at least ``min_count``.

    Words are what spaces separate, in lower case and with a space on either side.

    Example:
        >>> frequent_pieces(["oaks", "oak"], (3, 4), 2)
        {' oa': 2, 'oak': 2, ' oak': 2}
    """
    index: dict[str, int] = {}
    counts = np.zeros(0, dtype=np.int64)
    for few in _blocks(texts):
        counter = PieceCounter(index, lengths, new=True)
        held = counter(few)
        counts = np.concatenate([counts, np.zeros(len(index) - len(counts), dtype=np.int64)])
        counts += np.bincount(held.indices, minlength=len(index))
    return {piece: count for piece, count in zip(index, counts.tolist(), strict=True) if count >= min_count}


class PieceCounter:
    """Counts given character n-grams within words.

    Args:
        index: the column of each n-gram.
        lengths: the smallest and the largest number of characters.
        new: whether to add n-grams that are not in ``index``.
    """

    def __init__(self, index: dict[str, int], lengths: tuple[int, int], *, new: bool = False) -> None:
        self.index, self.lengths, self.new = index, lengths, new

    def __call__(self, texts: Sequence[str]) -> Any:
        """Return the counts, a scipy CSR matrix ``(texts, n-grams)`` float32."""
        words: dict[str, int] = {}
        sizes, found = [0], []
        for text in texts:
            ids = [words.setdefault(word, len(words)) for word in text.lower().split()]
            sizes.append(len(ids))
            found += ids
        text_of = np.repeat(np.arange(len(texts)), sizes[1:])
        in_text = _counts([text_of], [np.array(found, dtype=np.int64)], (len(texts), len(words)))
        ends, columns = [0], []
        for word in words:
            columns += self._columns(word)
            ends.append(len(columns))
        ones = np.ones(len(columns), dtype=np.float32)
        sparse = require("scipy.sparse", extra="data")
        in_word = sparse.csr_matrix((ones, np.array(columns, dtype=np.int64), ends), (len(words), len(self.index)))
        in_word.sum_duplicates()
        counts = in_text @ in_word
        counts.sort_indices()
        return counts

    def _columns(self, word: str) -> list[int]:
        padded = f" {word} "
        shortest, longest = self.lengths
        pieces = [
            padded[start : start + length]
            for length in range(shortest, min(longest, len(padded)) + 1)
            for start in range(len(padded) - length + 1)
        ]
        if self.new:
            return [self.index.setdefault(piece, len(self.index)) for piece in pieces]
        return [self.index[piece] for piece in pieces if piece in self.index]


def _read_words(texts: Sequence[str], index: dict[str, int], *, new: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return the number of every word, -1 if it is not in the index, and the text it is in."""
    sizes, found = [], []
    for text in texts:
        words = _WORD.findall(text.lower())
        sizes.append(len(words))
        if new:
            found += [index.setdefault(word, len(index)) for word in words]
        else:
            found += [index.get(word, -1) for word in words]
    return np.array(found, dtype=np.int64), np.repeat(np.arange(len(texts)), sizes)


def _codes(nodes: np.ndarray, words: np.ndarray, text_of: np.ndarray, length: int, base: int) -> np.ndarray:
    """Return the code of the n-gram that starts at each word, -1 if a part of it does not count or it leaves the text.

    Args:
        nodes: the number of the n-gram that is one word shorter, or -1.
        words: the number of each word, or -1.
        text_of: the text of each word.
        length: n.
        base: above all numbers of words.
    """
    codes = np.full(len(words), -1, dtype=np.int64)
    last = length - 1
    if len(words) > last:
        whole = (nodes[:-last] >= 0) & (words[last:] >= 0) & (text_of[:-last] == text_of[last:])
        codes[:-last] = np.where(whole, nodes[:-last] * base + words[last:], -1)
    return codes


def _counts(rows: list[np.ndarray], columns: list[np.ndarray], shape: tuple[int, int]) -> Any:
    sparse = require("scipy.sparse", extra="data")
    row = np.concatenate(rows) if rows else np.zeros(0, dtype=np.int64)
    column = np.concatenate(columns) if columns else np.zeros(0, dtype=np.int64)
    # The constructor sums pairs that occur several times.
    counts = sparse.csr_matrix((np.ones(len(row), dtype=np.float32), (row, column)), shape)
    counts.sort_indices()
    return counts


def _blocks(texts: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(texts), _TEXTS):
        yield texts[start : start + _TEXTS]

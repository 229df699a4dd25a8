"""BioASQ task A: PubMed articles with their MeSH headings, read one by one from a file of any size."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

from shortlist.data.dataset import Dataset
from shortlist.data.files.json_stream import json_records
from shortlist.data.files.text_files import need_file, take
from shortlist.data.files.vocabularies import LabelSets, NameCodes
from shortlist.data.inputs import Texts


def read_bioasq(path: str | Path, *, encoding: str = "utf-8", min_count: int = 1, limit: int | None = None) -> Dataset:
    r"""Read PubMed articles with MeSH headings.

    The file is ``{"articles": [...]}``, a plain list, or JSON lines, of records ``{"abstractText", "journal",
    "meshMajor": [...], "pmid", "title", "year"}``, also in ``.gz``. It is read in pieces, whatever its line breaks, so
    that 20 GB need no more memory than the texts that are kept; give ``limit`` for a part of them. Of two articles with
    one ``pmid``, both stay.

    Args:
        path: the file.
        encoding: of the file; the published ones of several years are ``latin-1``.
        min_count: headings in fewer articles (of those read) are dropped, their articles are not.
        limit: read so many articles, from the first; None for all.

    Returns:
        Texts (journal, title and abstract, joined by a space) with sparse targets; ``row_groups`` has ``journal`` and
        ``year``.

    Raises:
        ValueError: names the file and the article, from 1, for what is not JSON, misses a key or ends early.

    Example:
        >>> from pathlib import Path
        >>> from tempfile import TemporaryDirectory
        >>> from shortlist.data.formats.bioasq import read_bioasq
        >>> article = '{"journal": "Cell", "title": "On mice.", "abstractText": "We ask.", "meshMajor": ["Mice"]}'
        >>> with TemporaryDirectory() as folder:
        ...     _ = Path(folder, "allMeSH.json").write_text('{"articles":[\n' + article + "\n]}")
        ...     articles = read_bioasq(Path(folder, "allMeSH.json"))
        >>> articles[0]
        Example(input='Cell On mice. We ask.', labels=('Mice',), unknown=(), split=None)

    References:
        Tsatsaronis et al., "An overview of the BIOASQ large-scale biomedical semantic indexing and question answering
        competition", 2015; http://participants-area.bioasq.org/datasets.
    """
    path = need_file(path)
    for argument, value in (("min_count", min_count), ("limit", 0 if limit is None else limit)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise ValueError(f"`{argument}` must be a whole number from 0; got {value!r}.")
    texts: list[str] = []
    labels, journals, years = LabelSets(), NameCodes(), NameCodes()
    for article in islice(json_records(path, key="articles", noun="article", encoding=encoding), limit):
        place = _place(path, len(texts) + 1, article)
        journal, title, abstract = (_text(article, key, place) for key in ("journal", "title", "abstractText"))
        headings = take(article, "meshMajor", list, place)
        for heading in headings:
            if not isinstance(heading, str) or not heading.strip():
                raise ValueError(f"{place}: 'meshMajor' must hold names of headings; got {heading!r:.60}.")
        texts.append(" ".join(part for part in (journal, title, abstract) if part))
        labels.add(heading.strip() for heading in headings)
        journals.add(journal or None)
        years.add(_text(article, "year", place) or None)
    targets, names = labels.settle(min_count=min_count)
    row_groups = {"journal": journals.groups(), "year": years.groups()}
    return Dataset(Texts(texts), targets, names, row_groups=row_groups, name=path.name.split(".")[0])


def _place(path: Path, number: int, article: dict[str, Any]) -> str:
    pmid = article.get("pmid")
    return f"`{path}` article {number}" + ("" if pmid is None else f" (pmid {pmid!s:.20})")


def _text(article: dict[str, Any], key: str, place: str) -> str:
    """The text of a key, "" if it is null or not there; years may be numbers."""
    value = article.get(key)
    if value is None:
        return ""
    if isinstance(value, bool) or not isinstance(value, (str, int) if key == "year" else str):
        raise ValueError(f"{place}: {key!r} must be text; got {value!r:.60}.")
    return str(value).strip()

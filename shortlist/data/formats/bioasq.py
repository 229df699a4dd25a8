"""BioASQ task A: PubMed articles with MeSH headings, read one by one from a file of any size."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

from shortlist.data.dataset import Dataset
from shortlist.data.files.json_stream import json_records
from shortlist.data.files.text_files import json_field, need_file
from shortlist.data.files.vocabularies import LabelSets, NameCodes
from shortlist.data.inputs import Texts
from shortlist.errors import InputError
from shortlist.tensors import check_size


def read_bioasq(path: str | Path, *, encoding: str = "utf-8", min_count: int = 1, limit: int | None = None) -> Dataset:
    r"""Read PubMed articles with MeSH headings.

    The file is ``{"articles": [...]}``, a plain list, or JSON lines, of records ``{"abstractText", "journal",
    "meshMajor": [...], "pmid", "title", "year"}``, compressed or not. It is read in chunks, whatever its line breaks,
    so 20 GB need no more memory than the texts themselves; ``limit`` reads only some of them. Two articles with the
    same ``pmid`` are both kept.

    Args:
        path: the file.
        encoding: of the file; those of several years are published in ``latin-1``.
        min_count: headings of fewer articles (among those read) are dropped; their articles are not.
        limit: read only the first articles, so many; None for all.

    Returns:
        Texts (journal, title and abstract, joined by a space) with sparse targets; ``row_groups`` has ``journal`` and
        ``year``.

    Raises:
        InputError: names the file and the article, from 1, that is not JSON, lacks a key or ends early.

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
    check_size("min_count", min_count, at_least=0, error=InputError)
    check_size("limit", 0 if limit is None else limit, at_least=0, error=InputError)
    texts: list[str] = []
    labels, journals, years = LabelSets(), NameCodes(), NameCodes()
    for article in islice(json_records(path, key="articles", noun="article", encoding=encoding), limit):
        pmid = article.get("pmid")
        where = f"`{path}` article {len(texts) + 1}" + ("" if pmid is None else f" (pmid {pmid!s:.20})")
        journal, title, abstract = (_text(article, key, where) for key in ("journal", "title", "abstractText"))
        headings = json_field(article, "meshMajor", list, where)
        for heading in headings:
            if not isinstance(heading, str) or not heading.strip():
                raise InputError(f"{where}: 'meshMajor' must hold names of headings; got {heading!r:.60}.")
        texts.append(" ".join(part for part in (journal, title, abstract) if part))
        labels.add(heading.strip() for heading in headings)
        journals.add(journal or None)
        years.add(_text(article, "year", where) or None)
    targets, names = labels.finish(min_count=min_count)
    row_groups = {"journal": journals.groups(), "year": years.groups()}
    return Dataset(Texts(texts), targets, names, row_groups=row_groups, name=path.name.split(".")[0])


def _text(article: dict[str, Any], key: str, where: str) -> str:
    """The text of a key, "" if it is null or missing; years may be numbers."""
    value = article.get(key)
    if value is None:
        return ""
    if isinstance(value, bool) or not isinstance(value, (str, int) if key == "year" else str):
        raise InputError(f"{where}: {key!r} must be text; got {value!r:.60}.")
    return str(value).strip()

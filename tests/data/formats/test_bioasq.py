"""BioASQ articles, in the published layout and in others of the same records."""

import json
from functools import partial

import pytest

from shortlist.data.files import json_stream
from shortlist.data.formats.bioasq import read_bioasq
from tests.data.datasets import values_of
from tests.data.refusals import refuses_to_read

refuses = partial(refuses_to_read, read_bioasq)

ARTICLES = [
    {
        "abstractText": "Mice, “wild” and not.",
        "journal": "PLoS pathogens",
        "meshMajor": ["Animals", "Drug Resistance, Multiple", "Mice"],
        "pmid": "27661101",
        "title": "On mice.",
        "year": "2017",
    },
    {
        "abstractText": "",
        "journal": "Cell",
        "meshMajor": ["Mice", "Mice"],
        "pmid": "2",
        "title": 'T]}\\"{',
        "year": "2009",
    },
    {"abstractText": "x", "journal": None, "meshMajor": [], "pmid": 3, "title": None, "year": None},
]


def published(articles):
    """First line, then an article on each line, as the files of the challenge are."""
    return '{"articles":[\n' + ",\n".join(json.dumps(article, ensure_ascii=False) for article in articles) + "]}"


LAYOUTS = {
    "published": published(ARTICLES),
    "first article on the first line": published(ARTICLES).replace("[\n", "[", 1) + "\n",
    "one line": json.dumps({"articles": ARTICLES}),
    "indented": json.dumps({"articles": ARTICLES}, indent=2),
    "plain list": json.dumps(ARTICLES, indent=1),
    "json lines": "\n".join(map(json.dumps, ARTICLES)) + "\n\n",
}


def write(folder, text):
    path = folder / "allMeSH.json"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("chunk", [1, 7, 1 << 20])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_gives_the_same_articles(tmp_path, layout, chunk, monkeypatch):
    monkeypatch.setattr(json_stream, "CHUNK", chunk)
    articles = read_bioasq(write(tmp_path, LAYOUTS[layout]))
    assert articles.inputs.batch(articles.part_rows("train")) == [
        "PLoS pathogens On mice. Mice, “wild” and not.",
        'Cell T]}\\"{',
        "x",
    ]
    assert articles.label_names == ("Animals", "Drug Resistance, Multiple", "Mice")
    assert [articles[row].labels for row in range(3)] == [articles.label_names, ("Mice",), ()]
    assert values_of(articles.row_groups["year"]) == ["2017", "2009", None]
    assert values_of(articles.row_groups["journal"]) == ["PLoS pathogens", "Cell", None]
    assert articles.split is None


def test_rare_headings_are_dropped_and_their_articles_stay(tmp_path):
    articles = read_bioasq(write(tmp_path, LAYOUTS["published"]), min_count=2)
    assert articles.label_names == ("Mice",)
    assert [articles[row].labels for row in range(3)] == [("Mice",), ("Mice",), ()]


def test_the_limit_stops_before_what_follows_is_looked_at(tmp_path):
    path = write(tmp_path, published(ARTICLES)[:-60] + "this is not JSON")
    assert len(read_bioasq(path, limit=2)) == 2
    assert len(read_bioasq(path, limit=0)) == 0
    refuses(path, "`limit` must be at least 0; got -1", limit=-1)
    refuses(path, "`min_count` must be a whole number; got True", min_count=True)


def test_the_buffer_does_not_grow_with_the_file(tmp_path, monkeypatch):
    monkeypatch.setattr(json_stream, "CHUNK", 1000)
    longest = 0
    grow = json_stream._Stream._grow

    def watch(stream, least):
        nonlocal longest
        more = grow(stream, least)
        longest = max(longest, len(stream._buffer))
        return more

    monkeypatch.setattr(json_stream._Stream, "_grow", watch)
    path = write(tmp_path, published([{**ARTICLES[0], "pmid": str(i)} for i in range(3000)]))
    assert len(read_bioasq(path)) == 3000
    assert longest < 10_000 < path.stat().st_size


def test_a_damaged_article_in_a_huge_file_is_not_read_to_the_end(tmp_path, monkeypatch):
    monkeypatch.setattr(json_stream, "CHUNK", 1000)
    monkeypatch.setenv("SHORTLIST_LIMITS", "record=5000")
    broken = published(ARTICLES).replace('"year": "2017"}', '"year": "2017"').replace("]}", "") + ",1" * 100_000
    refuses(write(tmp_path, broken), "article 1 is not JSON: Expecting property name enclosed in double quotes")


@pytest.mark.parametrize("chunk", [1, 7, 1 << 20])
@pytest.mark.parametrize("count", [0, 3])
def test_other_keys_may_stand_before_and_after_the_articles(tmp_path, monkeypatch, chunk, count):
    monkeypatch.setattr(json_stream, "CHUNK", chunk)
    path = tmp_path / "a.json"
    before = {"source": 'the "articles": [', "made": {"by": ["x", {"articles": []}], "articles": 3}, "year": 2017}
    path.write_text(json.dumps({**before, "articles": ARTICLES[:count], "count": 12, "notes": [{}]}))
    data = read_bioasq(path)
    assert len(data) == count
    assert data.label_names == (("Animals", "Drug Resistance, Multiple", "Mice") if count else ())

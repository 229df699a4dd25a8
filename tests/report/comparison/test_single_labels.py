"""Single labels in a report: their chart, and the data of their table."""

import pytest

from shortlist.comparison_document import ComparisonDocument
from shortlist.report.comparison.single_labels import label_panel, label_table, number_of_labels
from tests.report.comparisons import comparison, document


def test_every_label_is_a_point_with_its_name_at_every_k():
    content = comparison(seeds=2)
    charts = label_panel(content).charts["lml"]
    assert len(charts) == len(content.ks)
    cloud, *lines = charts[1].series
    assert cloud.notes == ("rose", "daisy", "clover", "tulip", "iris")
    assert cloud.x == (300, 75, 33, 18, 12)
    assert cloud.y == pytest.approx([2 / 4, 2 / 5, 2 / 6, 2 / 7, 2 / 8], abs=0.01)
    assert [line.name for line in lines] == ["cross_entropy", "lml"]


def test_labels_that_the_chart_cannot_show_are_counted():
    content = document()
    content["labels"][0]["training"] = 0
    note = label_panel(ComparisonDocument.from_json(content)).charts["lml"][2].note
    assert note == (
        "Not shown: 1 label with fewer test rows, or none. Not shown: 1 label without training rows, recall 75.0%."
    )


def test_documents_without_labels_have_neither_chart_nor_table():
    content = document()
    del content["labels"]
    for candidate in content["candidates"].values():
        for run in candidate["runs"]:
            del run["sets"]["labels"]
    read = ComparisonDocument.from_json(content)
    assert label_panel(read) is None
    assert label_table(read, lambda values: 0) is None


def test_the_table_has_means_over_seeds_and_the_labels_that_are_confused():
    lists = []

    def store(values):
        lists.append(values)
        return len(lists) - 1

    content = comparison(seeds=2)
    table = label_table(content, store)
    assert table["names"][:2] == ["rose", "daisy"]
    assert (table["training"][1], table["evaluated"][1]) == (75, 49)
    lml = table["candidates"][1]
    assert len(lml["recall"]) == len(lml["size"]) == len(content.ks)
    assert lists[lml["recall"][2]][1] == 0.6
    assert lists[lml["size"][2]][1] == 3.1
    assert lml["confused"][:2] == [[], [[25, 5]]]
    assert table["others"] == ["weed"]  # Number 5, after the five names.


def test_of_many_labels_the_most_frequent_are_shown():
    many = comparison(labels=tuple(f"label {number}" for number in range(9000)), ks=tuple(range(1, 11)))
    assert number_of_labels(many) == 2250
    assert len(label_table(many, lambda values: 0)["names"]) == 2250

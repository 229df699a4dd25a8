"""Taxonomies: what the tables hold, from the definition, and how files and graphs that are none are refused."""

import math
import pickle

import networkx
import numpy as np
import pytest
import torch

from shortlist.data import Dataset, Features, Groups
from shortlist.errors import InputError
from shortlist.taxonomy import (
    Taxonomy,
    taxonomy_from_csv,
    taxonomy_from_groups,
    taxonomy_from_networkx,
    taxonomy_from_parents,
)
from tests.sets.random_taxonomies import labels_below, random_taxonomy

OAKS = {"robur": "Quercus", "ilex": "Quercus", "ash": "Fraxinus", "Quercus": "tree", "Fraxinus": "tree"}
each_kind = pytest.mark.parametrize("extra", [0, 4], ids=["tree", "DAG"])
each_seed = pytest.mark.parametrize("seed", range(15))


@each_kind
@each_seed
def test_the_tables_are_those_of_the_definition(seed, extra):
    taxonomy = random_taxonomy(seed, 1 + seed, extra=extra)
    below, n = labels_below(taxonomy), taxonomy.num_labels
    assert taxonomy.sizes.tolist() == [len(inside) for inside in below]
    assert taxonomy.is_tree == all(len(parents) == 1 for parents in taxonomy.parents[:-1])
    place, labels = taxonomy.labels_below.of(torch.arange(len(taxonomy)))
    assert [set(labels[place == node].tolist()) for node in range(len(taxonomy))] == below
    place, above = taxonomy.ancestors.of(torch.arange(n))
    for label in range(n):
        wanted = {node for node, inside in enumerate(below) if label in inside}
        # Nodes of a DAG can hold a label only as its ancestors.
        assert set(above[place == label].tolist()) == set(taxonomy.ancestor_table[label].tolist()) == wanted
    held = taxonomy.contains(torch.arange(len(taxonomy))[:, None], torch.arange(n))
    assert [set(row.nonzero()[:, 0].tolist()) for row in held] == below
    for node, parents in enumerate(taxonomy.parents[:-1]):
        assert int(taxonomy.depths[node]) == 1 + max(int(taxonomy.depths[parent]) for parent in parents)
    edges = [pair for level in taxonomy.levels for pair in zip(*(part.tolist() for part in level[:2]), strict=True)]
    assert sorted(edges) == sorted((p, node) for node, parents in enumerate(taxonomy.parents) for p in parents)


@each_kind
@each_seed
@pytest.mark.parametrize("scale", [1.0, 1e-30, 1e30])
def test_masses_are_sums_and_no_node_has_less_than_one_below_it(seed, extra, scale):
    taxonomy = random_taxonomy(seed, 1 + 3 * seed, extra=extra)
    generator = torch.Generator().manual_seed(seed)
    values = scale * torch.rand(20, taxonomy.num_labels, generator=generator).double().pow(20)
    masses = taxonomy.masses(values)
    for row, found in zip(values.tolist(), masses.tolist(), strict=True):
        exact = [math.fsum(row[label] for label in inside) for inside in labels_below(taxonomy)]
        assert found == pytest.approx(exact, rel=1e-12, abs=1e-13 * math.fsum(row))
    for node, parents in enumerate(taxonomy.parents):
        for parent in parents:
            assert (masses[:, parent] >= masses[:, node]).all()
    assert torch.equal(torch.cat([taxonomy.masses(row[None]) for row in values]), masses)


def test_labels_come_first_in_their_order_and_children_before_parents():
    taxonomy = taxonomy_from_parents(OAKS, labels=["ash", "ilex", "robur"])
    assert taxonomy.names == ("ash", "ilex", "robur", "Fraxinus", "Quercus", "tree")
    assert taxonomy.parents == ((3,), (4,), (4,), (5,), (5,), ())
    assert taxonomy_from_parents(OAKS).names[:3] == ("robur", "ilex", "ash")


def test_every_source_gives_the_same_taxonomy(tmp_path):
    wanted, labels = taxonomy_from_parents(OAKS, root="tree"), ["robur", "ilex", "ash"]
    pairs = list(OAKS.items())
    (tmp_path / "oaks.csv").write_text("child,parent\n" + "".join(f"{child},{parent}\n" for child, parent in pairs))
    graph = networkx.DiGraph([(parent, child) for child, parent in pairs])
    genus = Groups.of(["Quercus", "Quercus", "Fraxinus"])
    for found in (
        taxonomy_from_parents(pairs, labels=labels),
        taxonomy_from_parents([*pairs, *pairs], labels=labels),
        taxonomy_from_csv(tmp_path / "oaks.csv", labels=labels),
        taxonomy_from_networkx(graph, labels=labels),
        taxonomy_from_groups(labels, {"genus": genus}, root="tree"),
        taxonomy_from_groups(labels, {"genus": ["Quercus", "Quercus", "Fraxinus"]}, root="tree"),
        Dataset(Features(torch.zeros(1, 1)), torch.tensor([0]), tuple(labels), {"genus": genus}).taxonomy(root="tree"),
        pickle.loads(pickle.dumps(wanted)),
        Taxonomy.from_document(wanted.document()),
    ):
        assert found == wanted
        assert found.names == wanted.names
    assert wanted != taxonomy_from_parents({"robur": "tree"})


def test_groups_may_lack_labels_share_names_and_be_inside_others():
    labels = ["robur", "ilex", "Fagus", "moss", "fern"]
    genus, family = ["Quercus", "Quercus", "Fagus", None, None], ["Fagaceae", "Fagaceae", "Fagaceae", None, "ferns"]
    taxonomy = taxonomy_from_groups(labels, {"family": family, "genus": genus})
    parent = {taxonomy.names[i]: taxonomy.names[p[0]] for i, p in enumerate(taxonomy.parents) if p}
    assert parent == {
        "robur": "Quercus",
        "ilex": "Quercus",
        "Fagus": "Fagus (genus)",
        "moss": "anything",
        "fern": "ferns",
        "Quercus": "Fagaceae",
        "Fagus (genus)": "Fagaceae",
        "Fagaceae": "anything",
        "ferns": "anything",
    }
    numbers = taxonomy_from_groups(["a", "b"], {"group": np.array([7, 7]).tolist()})
    assert numbers.names == ("a", "b", "7", "anything")


def test_a_dataset_takes_the_partitions_that_are_named():
    groups = {"half": Groups(torch.tensor([0, 0, 1]), ("x", "y")), "other": Groups(torch.tensor([0, 1, 1]), ("u", "v"))}
    dataset = Dataset(Features(torch.zeros(1, 1)), torch.tensor([0]), ("a", "b", "c"), groups)
    assert set(dataset.taxonomy("other").names) == {"a", "b", "c", "u", "v", "anything"}
    with pytest.raises(ValueError, match="`groups` 'other': 'v' must be in one group, not 'x' and 'y'"):
        dataset.taxonomy()
    with pytest.raises(ValueError, match="`label_groups` of the dataset must have 'genus'; it has half, other"):
        dataset.taxonomy("genus")
    bare = Dataset(Features(torch.zeros(1, 1)), torch.tensor([0]), ("a",))
    with pytest.raises(ValueError, match="must have groups of labels"):
        bare.taxonomy()


REFUSED = {
    "a taxonomy must have no cycle; got 'b' → 'c' → 'b'": ({"a": "b", "b": "c", "c": "b"}, None),
    "a taxonomy must have no cycle; got 'a' → 'a'": ({"a": "a"}, None),
    "no cycle; got 'q' → 'p' → 'q'": ({"a": "b", "p": "q", "q": "p"}, ["a"]),
    "a label must have a parent; 'x' has none": ({"a": "b"}, ["a", "x"]),
    "a label must be a leaf; 'b' has children": ({"a": "b", "b": "c"}, ["a", "b"]),
    "every leaf must be a label; 'b' is none, and 1 others": ({"a": "c", "b": "c", "d": "c"}, ["a"]),
    "`root` must be a new name, since 2 nodes have no parent": ({"a": "b", "c": "anything"}, None),
    "`labels` must differ; 'a' occurs twice": ({"a": "b"}, ["a", "a"]),
    "`labels` must name at least one label": ({}, None),
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_is_no_taxonomy_is_refused_in_one_sentence(message, tmp_path):
    parents, labels = REFUSED[message]
    with pytest.raises(ValueError, match=message) as caught:
        taxonomy_from_parents(parents, labels=labels)
    assert len(str(caught.value).splitlines()) == 1
    (tmp_path / "table.csv").write_text("child,parent\n" + "".join(f"{a},{b}\n" for a, b in parents.items()))
    with pytest.raises(InputError, match=r"table\.csv") as caught:
        taxonomy_from_csv(tmp_path / "table.csv", labels=labels)
    assert str(caught.value).count("\n") == 0


def test_a_long_cycle_is_not_listed_whole():
    chain = {str(i): str((i + 1) % 50_000) for i in range(50_000)} | {"label": "0"}
    with pytest.raises(ValueError, match="no cycle") as caught:
        taxonomy_from_parents(chain)
    assert len(str(caught.value)) < 100


def test_leaves_that_are_no_labels_can_be_left_out():
    table = {**OAKS, "nigra": "Fraxinus", "alba": "Betula", "Betula": "tree"}
    taxonomy = taxonomy_from_parents(table, labels=["robur", "ilex", "ash"], prune=True)
    assert taxonomy == taxonomy_from_parents(OAKS)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"child,parent\na\n", "line 2 must have two columns, child and parent; got \\['a'\\]"),
        (b"child,parent\na,\n", "line 2 must have two columns"),
        (b"child,parent\na,b\n\nb,c,d\n", "line 4"),
        (b"\xff\xfe", "no CSV file in UTF-8"),
        (b"", "`labels` must name at least one label"),
    ],
)
def test_a_csv_file_that_is_none_is_refused_with_its_line(content, message, tmp_path):
    (tmp_path / "table.csv").write_bytes(content)
    with pytest.raises(InputError, match=message):
        taxonomy_from_csv(tmp_path / "table.csv")
    with pytest.raises(InputError, match="cannot be read"):
        taxonomy_from_csv(tmp_path / "none.csv")


def test_graphs_must_be_directed_and_groups_complete():
    with pytest.raises(ValueError, match="`graph` must be directed"):
        taxonomy_from_networkx(networkx.Graph([("a", "b")]))
    with pytest.raises(ValueError, match="`groups` 'genus' must have an entry for each of 2 labels"):
        taxonomy_from_groups(["a", "b"], {"genus": ["x"]})
    with pytest.raises(TypeError, match="`taxonomy` must have a list of names"):
        Taxonomy.from_document({"names": "ab", "parents": [[1], []], "num_labels": 1})


def test_a_chain_that_would_fill_the_memory_is_refused(monkeypatch):
    monkeypatch.setenv("SHORTLIST_LIMITS", "ancestors=1000")
    with pytest.raises(ValueError, match="too many pairs of a node and an ancestor: at most 1000"):
        taxonomy_from_parents({str(i): str(i + 1) for i in range(50)})
    assert len(taxonomy_from_parents({str(i): str(i + 1) for i in range(40)})) == 41

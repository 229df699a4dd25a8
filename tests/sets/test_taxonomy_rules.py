"""Rules on a taxonomy, against brute force, and their promise by simulation."""

import itertools
import json
import math
from fractions import Fraction

import pytest
import torch

from shortlist.errors import InputError
from shortlist.sets import AverageError, CheapestCover, DeepestNode, expand, load_rule
from shortlist.taxonomy import Taxonomy, taxonomy_from_groups, taxonomy_from_parents
from tests.reference_sets import conformal_rank
from tests.sets.random_taxonomies import children, labels_below, random_taxonomy
from tests.sets.rules import DAG, LABELS, TREE
from tests.sets.worlds import SCORE_KINDS, ambiguous_probs, classified, draw, seeded, tied_scores


def path_of(row: list[float], taxonomy: Taxonomy) -> list[tuple[int, float]]:
    """The nodes from the root to the child with the largest mass, and so on, with their masses; loops and sums."""
    below, path = labels_below(taxonomy), [taxonomy.root]
    mass = lambda node: sum(max(row[label], 0.0) for label in below[node])
    while path[-1] >= taxonomy.num_labels:
        path.append(max(children(taxonomy, path[-1]), key=lambda node: (mass(node), -node)))
    return [(node, mass(node)) for node in path]


def node_at(row: list[float], level: float, taxonomy: Taxonomy) -> int:
    """The deepest node on the path with more mass than the level, else the root."""
    return next((node for node, mass in reversed(path_of(row, taxonomy)) if mass > level), taxonomy.root)


@pytest.mark.parametrize("extra", [0, 3], ids=["tree", "DAG"])
@pytest.mark.parametrize("kind", ["distinct", "quantised", "one-hot", "constant columns"])
@pytest.mark.parametrize("seed", range(6))
def test_the_deepest_node_is_that_of_the_definition(seed, kind, extra):
    taxonomy = random_taxonomy(seed, 2 + seed, extra=extra)
    below, count, alpha = labels_below(taxonomy), 30, 0.25
    scores = (64 * tied_scores(kind, 2 * count, 2 + seed, seeded(seed))).round() / 64  # exact sums
    classes = torch.randint(2 + seed, (count,), generator=seeded(seed))
    rule = DeepestNode(alpha, taxonomy).fit(scores[:count], classes, from_logits=False)
    levels = []  # the least level at which the true label is covered; -inf if it always is
    for row, true in zip(scores[:count].tolist(), classes.tolist(), strict=True):
        candidates = sorted({-math.inf, *(mass for _, mass in path_of(row, taxonomy))})
        levels.append(next(level for level in candidates if true in below[node_at(row, level, taxonomy)]))
    level = sorted(levels)[conformal_rank(alpha, count) - 1]
    assert float(rule.threshold) == -level
    for row, found in zip(scores[count:].tolist(), rule(scores[count:]), strict=True):
        assert set(found.nonzero()[:, 0].tolist()) == below[node_at(row, level, taxonomy)]


@pytest.mark.parametrize("seed", range(20))
def test_above_one_half_no_deeper_node_has_the_mass(seed):
    taxonomy = random_taxonomy(seed, 12)
    below, probs = labels_below(taxonomy), torch.rand(40, 12, generator=seeded(seed)).double().pow(6)
    probs = probs / probs.sum(-1, keepdim=True)
    rule = DeepestNode(0.3, taxonomy).fit(probs, draw(probs, seeded(seed)), from_logits=False)
    level = max(0.5, -float(rule.threshold))
    rule.threshold.fill_(-level)
    for row, found in zip(probs.tolist(), rule(probs), strict=True):
        heavy = [inside for inside in below if sum(row[label] for label in inside) > level + 1e-9]
        assert int(found.sum()) == min(map(len, heavy))


def covers(node: int, active: set[int], taxonomy: Taxonomy, below: list[set[int]]) -> list[frozenset[int]]:
    """Every set of nodes that holds the active labels below a node and needs all of its nodes."""
    if not below[node] & active:
        return [frozenset()]
    parts = [covers(child, active, taxonomy, below) for child in children(taxonomy, node)]
    split = [frozenset().union(*choice) for choice in itertools.product(*parts)] if parts else []
    return [frozenset([node]), *split]


@pytest.mark.parametrize("name_cost", [0.0, 0.3, 1.0, 2.5, 100.0])
@pytest.mark.parametrize("seed", range(12))
def test_the_cover_is_the_cheapest_of_all(seed, name_cost):
    n = 1 + seed
    taxonomy, cost = random_taxonomy(seed, n), Fraction(round(name_cost * 1024), 1024)
    below = labels_below(taxonomy)
    rule = CheapestCover(0.3, taxonomy, name_cost=name_cost)
    order = torch.randperm(n, generator=seeded(seed)).tolist()
    before: set[int] = set()
    for count in range(n + 1):
        active = set(order[:count])
        mask = torch.tensor([[label in active for label in range(n)]])
        found = set(rule._covered(mask)[0].nonzero()[:, 0].tolist())
        all_covers = covers(taxonomy.root, active, taxonomy, below)
        costs = [sum(len(below[node]) + cost for node in cover) for cover in all_covers]
        cheapest = [cover for cover, each in zip(all_covers, costs, strict=True) if each == min(costs)]
        unions = [set().union(*(below[node] for node in cover)) for cover in cheapest]
        assert found in unions
        assert len(found) == max(map(len, unions))  # of equal cost, the one with fewer names
        assert before | active <= found, "more active labels, a larger cover"
        before = found


@pytest.mark.parametrize("kind", ["distinct", "quantised", "constant", "one-hot", "duplicated rows"])
@pytest.mark.parametrize("seed", range(5))
def test_a_label_enters_a_cover_at_the_first_of_all_levels(seed, kind):
    n, count = 3 + seed, 40
    taxonomy = random_taxonomy(seed, n)
    scores = tied_scores(kind, count, n, seeded(seed))
    classes = torch.randint(n, (count,), generator=seeded(seed))
    rule = CheapestCover(0.2, taxonomy, name_cost=1.5).fit(scores, classes, from_logits=False)
    entries = []
    for row, true in zip(scores, classes.tolist(), strict=True):
        levels = row.sort(descending=True).values
        entries.append(next(float(level) for level in levels if rule._covered((row >= level)[None])[0, true]))
    assert float(rule.threshold) == sorted(entries, reverse=True)[conformal_rank(0.2, count) - 1]


@pytest.mark.parametrize("kind", SCORE_KINDS)
def test_names_that_cost_nothing_give_the_sets_without_a_taxonomy(kind):
    scores, classes = classified(kind, 300, LABELS, seeded(0))
    free = CheapestCover(0.1, TREE, name_cost=0).fit(scores, classes, from_logits=False)
    plain = AverageError(0.1).fit(scores, classes, from_logits=False)
    assert torch.equal(free(scores), plain(scores))
    assert free.tie_share == plain.tie_share


def test_names_that_cost_a_lot_give_one_name():
    scores, classes = classified("good", 300, LABELS, seeded(0))
    rule = CheapestCover(0.1, TREE, name_cost=1e9).fit(scores, classes, from_logits=False)
    sets = rule.predict_nodes(scores, generator=seeded(0))
    assert int(sets.sizes.max()) == 1
    assert len(set(sets.labels.tolist())) > LABELS


@pytest.mark.parametrize(
    "make", [lambda: DeepestNode(0.2, TREE), lambda: DeepestNode(0.2, DAG), lambda: CheapestCover(0.2, TREE)]
)
def test_nodes_hold_the_labels_of_the_sets(make):
    scores, classes = classified("good", 400, LABELS, seeded(1))
    rule = make().fit(scores, classes, from_logits=False)
    sets, nodes = (predict(scores, generator=seeded(2)) for predict in (rule.predict, rule.predict_nodes))
    assert torch.equal(expand(nodes, rule.taxonomy).to_mask(), sets.to_mask())
    assert nodes.names == rule.taxonomy.names
    assert nodes.sizes.max() <= (1 if isinstance(rule, DeepestNode) else LABELS)
    single = nodes.labels[nodes.indptr[:-1]][nodes.sizes == 1]
    masses = rule.taxonomy.masses(scores)[nodes.sizes == 1]
    torch.testing.assert_close(
        masses.gather(1, single[:, None])[:, 0].float(),
        nodes.scores[nodes.rows.bincount(minlength=400)[nodes.rows] == 1],
    )


def test_a_group_is_named_though_some_of_its_labels_are_absent():
    logits, classes = torch.randn(200, LABELS, generator=seeded(0)), torch.zeros(200, dtype=torch.int64)
    logits[:, 1] = -math.inf  # label 1 belongs to a, like the labels 0 and 2
    rule = DeepestNode(0.2, TREE).fit(logits, classes, from_logits=True)
    nodes, sets = rule.predict_nodes(logits, generator=seeded(0)), rule.predict(logits, generator=seeded(0))
    assert not sets.to_mask()[:, 1].any()
    assert nodes.sizes.tolist() == [1] * 200
    held = [row == [True, False, True, False, False, False] for row in sets.to_mask().tolist()]
    assert sum(held) > 0
    assert {names[0] for names, holds in zip(nodes.to_list(), held, strict=True) if holds} == {"a"}


def test_with_one_label_the_answer_is_the_label():
    tree = taxonomy_from_parents({"only": "group"})
    scores = torch.rand(30, 1, generator=seeded(0))
    for rule in (DeepestNode(0.2, tree), CheapestCover(0.2, tree)):
        rule.fit(scores, torch.zeros(30, dtype=torch.int64), from_logits=False)
        assert rule(torch.tensor([[1.0]])).all()
        assert rule.predict_nodes(torch.tensor([[1.0]])).to_list() == [["only"]]


def test_huge_logits_and_many_labels_are_no_trouble():
    tree = taxonomy_from_groups([str(i) for i in range(3000)], {"ten": [i // 10 for i in range(3000)]}, root="all")
    logits = 1e4 * torch.randn(50, 3000, generator=seeded(0))
    for rule in (DeepestNode(0.1, tree), CheapestCover(0.1, tree)):
        rule.fit(logits, logits.argmax(-1), from_logits=True)
        assert torch.equal(rule(logits).long().sum(-1), torch.ones(50, dtype=torch.int64))


def test_what_does_not_fit_is_one_sentence():
    scores, classes = torch.rand(20, LABELS, generator=seeded(0)), torch.zeros(20, dtype=torch.int64)
    with pytest.raises(ValueError, match="`taxonomy` must have the 5 labels of the scores; it has 6"):
        DeepestNode(0.1, TREE).fit(scores[:, :5], classes, from_logits=False)
    with pytest.raises(ValueError, match="`scores` must be probabilities, not negative; row 3"):
        DeepestNode(0.1, TREE).fit(scores.index_fill(0, torch.tensor([3]), -1.0), classes, from_logits=False)
    with pytest.raises(ValueError, match="`taxonomy` must be a tree; '1' has several parents"):
        CheapestCover(0.1, DAG)
    with pytest.raises(ValueError, match="`name_cost` must be finite and at least 0; got -1"):
        CheapestCover(0.1, TREE, name_cost=-1)
    with pytest.raises(ValueError, match="`alpha` must lie strictly between 0 and 1"):
        DeepestNode(1.0, TREE)
    with pytest.raises(TypeError, match="`taxonomy` must be a Taxonomy; got dict"):
        DeepestNode(0.1, {"a": "b"})
    with pytest.raises(ValueError, match="must be fitted before it predicts"):
        DeepestNode(0.1, TREE).predict_nodes(scores)


DAMAGE = {
    "a cycle": lambda taxonomy: taxonomy["parents"].__setitem__(6, [6]),
    "a parent below": lambda taxonomy: taxonomy["parents"].__setitem__(7, [6]),
    "a parent that is a label": lambda taxonomy: taxonomy["parents"].__setitem__(0, [1]),
    "no parent": lambda taxonomy: taxonomy["parents"].__setitem__(0, []),
    "a parent beyond": lambda taxonomy: taxonomy["parents"].__setitem__(0, [10**30]),
    "a text": lambda taxonomy: taxonomy["parents"].__setitem__(0, "a"),
    "a fraction": lambda taxonomy: taxonomy["parents"].__setitem__(0, [6.5]),
    "a name twice": lambda taxonomy: taxonomy["names"].__setitem__(0, "1"),
    "a name that is a number": lambda taxonomy: taxonomy["names"].__setitem__(0, 5),
    "too few names": lambda taxonomy: taxonomy["names"].pop(),
    "other labels": lambda taxonomy: taxonomy.__setitem__("num_labels", 5),
    "no labels": lambda taxonomy: taxonomy.__setitem__("num_labels", 0),
    "nothing": lambda taxonomy: taxonomy.clear(),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_taxonomy_in_a_file_is_one_sentence(damage, tmp_path):
    scores, classes = classified("good", 50, LABELS, seeded(0))
    DeepestNode(0.2, TREE).fit(scores, classes, from_logits=False).save(tmp_path / "rule.json")
    content = json.loads((tmp_path / "rule.json").read_text())
    assert load_rule(tmp_path / "rule.json").taxonomy == TREE
    DAMAGE[damage](content["options"]["taxonomy"])
    (tmp_path / "rule.json").write_text(json.dumps(content))
    with pytest.raises(InputError, match=r"rule\.json` is damaged") as caught:
        load_rule(tmp_path / "rule.json")
    assert len(str(caught.value).splitlines()) == 1


RULES = {
    "node": lambda alpha: DeepestNode(alpha, TREE),
    "node of a DAG": lambda alpha: DeepestNode(alpha, DAG),
    "cover": lambda alpha: CheapestCover(alpha, TREE),
    "cover with dear names": lambda alpha: CheapestCover(alpha, TREE, name_cost=7),
}
FRESH = 100


def coverage(make, kind: str, alpha: float, count: int, repetitions: int) -> tuple[float, float]:
    """Share of fresh rows whose class is in the set, and of those whose best label is right, over repetitions."""
    ties = seeded(1)
    scores, classes = classified(kind, repetitions * (count + FRESH), LABELS, seeded(count))
    covered = 0
    for some, own in zip(scores.chunk(repetitions), classes.chunk(repetitions), strict=True):
        rule = make(alpha).fit(some[:count], own[:count], from_logits=False)
        covered += int(rule.predict(some[count:], generator=ties).contains(own[count:]).sum())
    return covered / (repetitions * FRESH), float((scores.argmax(-1) == classes).float().mean())


GRID = [pytest.param(alpha, count, 250, marks=pytest.mark.slow) for alpha, count in ((0.05, 20), (0.1, 200), (0.3, 20))]


@pytest.mark.parametrize("make", RULES.values(), ids=RULES)
@pytest.mark.parametrize("kind", SCORE_KINDS)
@pytest.mark.parametrize(("alpha", "count", "repetitions"), [(0.1, 20, 40), *GRID])
def test_the_true_label_is_in_the_set_as_often_as_promised(make, kind, alpha, count, repetitions):
    expected = conformal_rank(alpha, count) / (count + 1)
    spread = math.sqrt(expected * (1 - expected) * (1 / (count + 2) + 1 / FRESH) / repetitions)
    found, right = coverage(make, kind, alpha, count, repetitions)
    assert found >= expected - 4 * spread >= 1 - alpha - 4 * spread
    if not isinstance(make(alpha), DeepestNode) or right < 1 - 2 * alpha:  # a node is never empty
        assert found <= expected + 4 * spread


@pytest.mark.slow
@pytest.mark.parametrize("alpha", [0.05, 0.1])
def test_without_calibration_a_model_that_is_too_sure_breaks_the_promise_that_the_rules_keep(alpha):
    """The node whose mass reaches 1 - alpha is right as often only if the probabilities are."""
    tree = taxonomy_from_groups([str(i) for i in range(30)], {"group": [i // 5 for i in range(30)]})
    count, fresh, repetitions, missed = 300, 200, 200, {"calibrated": 0.0, "cover": 0.0, "as it says": 0.0}
    for repetition in range(repetitions):
        probs = ambiguous_probs(count + fresh, seeded(repetition))
        classes, sure = draw(probs, seeded(10_000 + repetition)), (4 * probs.log()).softmax(-1)
        rules = {"calibrated": DeepestNode(alpha, tree), "cover": CheapestCover(alpha, tree)}
        for rule in rules.values():
            rule.fit(sure[:count], classes[:count], from_logits=False)
        plain = DeepestNode(alpha, tree).fit(sure[:count], classes[:count], from_logits=False)
        plain.threshold.fill_(-(1 - alpha))
        for name, rule in {**rules, "as it says": plain}.items():
            sets = rule.predict(sure[count:], generator=seeded(repetition))
            missed[name] += float((~sets.contains(classes[count:])).float().mean()) / repetitions
    spread = math.sqrt(alpha * (1 - alpha) * (1 / count + 1 / fresh) / repetitions)
    assert missed["calibrated"] <= alpha + 4 * spread
    assert missed["cover"] <= alpha + 4 * spread
    assert missed["as it says"] > 1.5 * alpha

"""Each metric from its definition: loops over rows, all orders of tied scores, exact fractions where possible.

``rows`` are lists of scores; ``positives`` and ``unknown`` are sets of labels, one for each row. A row has few labels,
because all orders of equal scores are enumerated.
"""

import math
from fractions import Fraction
from functools import lru_cache
from itertools import chain, combinations, groupby, pairwise, permutations, product

NAN = math.nan


def mean(values):
    values = list(values)
    return sum(values) / Fraction(len(values)) if values else NAN


def orders(scored):
    """Every order, best first, of items with scores; an item of score -inf is in none."""
    finite = sorted((item for item in scored if item[1] > -math.inf), key=lambda item: -item[1])
    groups = [[name for name, _ in group] for _, group in groupby(finite, key=lambda item: item[1])]
    for choice in product(*(permutations(group) for group in groups)):
        yield list(chain(*choice))


def known(row, unknown):
    return [(label, score) for label, score in enumerate(row) if label not in unknown]


def expected(row, unknown, value):
    """Mean of ``value(order)`` over all orders of the known labels."""
    return mean(value(order) for order in orders(known(row, unknown)))


def hits_at_k(row, positives, unknown, k):
    return _hits(tuple(row), frozenset(positives), frozenset(unknown), k)


@lru_cache(maxsize=4096)
def _hits(row, positives, unknown, k):
    return expected(row, unknown, lambda order: len(positives & set(order[:k])))


def _over_rows(value, rows, positives, unknown):
    """Mean of ``value(row, positives, unknown)`` over rows with a positive."""
    return mean(value(*line) for line in zip(rows, positives, unknown, strict=True) if line[1])


def precision_at_k(rows, positives, unknown, k):
    return _over_rows(lambda *line: hits_at_k(*line, k) / k, rows, positives, unknown)


def recall_at_k(rows, positives, unknown, k):
    return _over_rows(lambda row, y, u: hits_at_k(row, y, u, k) / len(y), rows, positives, unknown)


def f1_at_k(rows, positives, unknown, k):
    p, r = precision_at_k(rows, positives, unknown, k), recall_at_k(rows, positives, unknown, k)
    return p + r if not p + r > 0 else 2 * p * r / (p + r)


def _dcg(order, positives, k):
    return sum(1 / math.log2(place + 2) for place, label in enumerate(order[:k]) if label in positives)


def ndcg_at_k(rows, positives, unknown, k):
    def of_row(row, y, u):
        return float(expected(row, u, lambda order: Fraction(_dcg(order, y, k)))) / _dcg(sorted(y), y, k)

    values = [of_row(*line) for line in zip(rows, positives, unknown, strict=True) if line[1]]
    return sum(values) / len(values) if values else NAN


def macro(classes, values):
    """Mean over classes of the means of their values."""
    return mean(mean(v for c, v in zip(classes, values, strict=True) if c == one) for one in set(classes))


def _averaged(classes, values, average):
    return mean(values) if average == "micro" else macro(classes, values)


def topk_accuracy(rows, positives, unknown, k, average="micro"):
    lines = [line for line in zip(rows, positives, unknown, strict=True) if line[1]]
    return _averaged([min(y) for _, y, _ in lines], [hits_at_k(*line, k) for line in lines], average)


def average_k_accuracy(rows, positives, unknown, k=None, threshold=None, average="micro"):
    """With ``k``: the mean over all ways to choose among the scores that tie at the cut."""
    lines = [line for line in zip(rows, positives, unknown, strict=True) if line[1]]
    scores = {(i, j): s for i, (row, _, u) in enumerate(lines) for j, s in known(row, u) if s > -math.inf}
    truth = [(i, min(y)) for i, (_, y, _) in enumerate(lines)]
    if threshold is not None:
        choices = [{cell for cell, s in scores.items() if s >= threshold}]
    else:
        choices = list(_best_cells(scores, math.floor(Fraction(str(k)) * len(lines))))
    values = [mean(Fraction(cell in chosen) for chosen in choices) for cell in truth]
    return _averaged([label for _, label in truth], values, average)


def _best_cells(scores, size):
    ordered = sorted(scores.values(), reverse=True)
    if size >= len(ordered):
        yield set(scores)
        return
    if size == 0:
        yield set()
        return
    edge = ordered[size - 1]
    above = {cell for cell, s in scores.items() if s > edge}
    equal = [cell for cell, s in scores.items() if s == edge]
    for chosen in combinations(equal, size - len(above)):
        yield above | set(chosen)


def line_average_precision(scored, positives):
    """Of items with scores: the mean over positives of the precision among all that score at least as much."""
    found = dict(scored)

    def precision(one):
        if found[one] == -math.inf:
            return Fraction(0)
        reached = [name for name, score in scored if score >= found[one]]
        return Fraction(sum(name in positives for name in reached), len(reached))

    return mean(precision(one) for one in positives)


def average_precision(rows, positives, unknown, by="class"):
    if by == "sample":
        return _over_rows(lambda row, y, u: line_average_precision(known(row, u), y), rows, positives, unknown)
    values = []
    for label in range(len(rows[0]) if rows else 0):
        column = [(i, row[label]) for i, row in enumerate(rows) if label not in unknown[i]]
        truth = {i for i, _ in column if label in positives[i]}
        if truth:
            values.append(line_average_precision(column, truth))
    return mean(values)


def f1_counts(rows, positives, unknown, threshold=None, k=None):
    """Hits, predictions and positives of each label; at k in expectation."""
    n = len(rows[0]) if rows else 0
    counts = [[Fraction(0)] * 3 for _ in range(n)]
    for row, y, u in zip(rows, positives, unknown, strict=True):
        best = [set(order[:k]) for order in orders(known(row, u))]
        for j, score in known(row, u):
            if k is None:
                chance = Fraction(score >= threshold and score > -math.inf)
            else:
                chance = Fraction(sum(j in chosen for chosen in best), len(best))
            for slot, amount in enumerate((chance * (j in y), chance, j in y)):
                counts[j][slot] += amount
    return counts


def f1_score(rows, positives, unknown, threshold=None, k=None, average="micro"):
    counts = f1_counts(rows, positives, unknown, threshold, k)
    if average == "micro":
        hits, predicted, actual = (sum(count[slot] for count in counts) for slot in range(3))
        return 2 * hits / (predicted + actual) if predicted + actual else NAN
    return mean(2 * hits / (predicted + actual) for hits, predicted, actual in counts if actual)


def propensities(counts, num_rows, a=0.55, b=1.5):
    scale = (math.log(num_rows) - 1) * (b + 1) ** a
    return [1 / (1 + scale * math.exp(-a * math.log(count + b))) for count in counts]


def propensity_scored_precision_at_k(rows, positives, unknown, weights, k, normalized=True):
    gained, best, count = Fraction(0), Fraction(0), 0
    gains = [1 / Fraction(weight) for weight in weights]
    for row, y, u in zip(rows, positives, unknown, strict=True):
        if y:
            gained += expected(row, u, lambda order, y=y: sum(gains[j] for j in order[:k] if j in y)) / k
            best += sum(sorted((gains[j] for j in y), reverse=True)[:k]) / Fraction(k)
            count += 1
    return gained / (best if normalized else count) if count else NAN


def _graphs(pairs, unknown, constrained):
    """Every order of the triples of one image."""
    if not constrained:
        triples = [((i, j), s) for i, (row, u) in enumerate(zip(pairs, unknown, strict=True)) for j, s in known(row, u)]
        yield from orders(triples)
        return
    best = []
    for i, (row, u) in enumerate(zip(pairs, unknown, strict=True)):
        finite = [(j, s) for j, s in known(row, u) if s > -math.inf]
        top = max((s for _, s in finite), default=None)
        best.append([((i, j), s) for j, s in finite if s == top])
    lists = [mean_orders for choice in product(*(b for b in best if b)) for mean_orders in [list(orders(choice))]]
    # Choices may allow different numbers of orders; each choice has the same probability.
    largest = math.lcm(*(len(found) for found in lists))
    for found in lists:
        yield from found * (largest // len(found))


def scene_graph_recall(rows, positives, unknown, image, k, constrained, missed=None, average="image"):
    """``missed[i]`` is a list of predicates whose pair was not detected in image i."""
    size = max([*(i + 1 for i in image), len(missed or [])], default=0)
    recalls, by_predicate = [], {}
    for i in range(size):
        mine = [p for p in range(len(rows)) if image[p] == i]
        truth = {(place, j) for place, p in enumerate(mine) for j in positives[p]}
        lost = list(missed[i]) if missed else []
        if not truth and not lost:
            continue
        graphs = list(_graphs([rows[p] for p in mine], [unknown[p] for p in mine], constrained))
        found = {triple: Fraction(sum(triple in order[:k] for order in graphs), len(graphs)) for triple in truth}
        recalls.append(sum(found.values()) / Fraction(len(truth) + len(lost)))
        for predicate in {j for _, j in truth} | set(lost):
            hits = sum(value for (_, j), value in found.items() if j == predicate)
            actual = sum(j == predicate for _, j in truth) + lost.count(predicate)
            by_predicate.setdefault(predicate, []).append(Fraction(hits) / actual)
    return mean(recalls) if average == "image" else mean(map(mean, by_predicate.values()))


def set_coverage(sets, positives, average="micro"):
    lines = [(s, y) for s, y in zip(sets, positives, strict=True) if y]
    return _averaged([min(y) for _, y in lines], [Fraction(len(s & y), len(y)) for s, y in lines], average)


def size_stratified_coverage(sets, positives, edges):
    groups = {}
    for s, y in zip(sets, positives, strict=True):
        if y:
            group = max(i for i, edge in enumerate(edges) if edge <= len(s))
            groups.setdefault(group, []).append(Fraction(len(s & y), len(y)))
    return min(map(mean, groups.values()), default=NAN)


def hierarchical(sets, positives, unknown, above, part):
    """Precision, recall or F1 of sets with their ancestors; ``above`` has those of each label without the root."""
    hits = predicted = true = 0
    for s, y, u in zip(sets, positives, unknown, strict=True):
        ours, theirs = (set().union(*({label} | above[label] for label in labels)) for labels in (s - u, y))
        hits, predicted, true = hits + len(ours & theirs), predicted + len(ours), true + len(theirs)
    over = {"precision": predicted, "recall": true, "f1": Fraction(predicted + true, 2)}[part]
    return Fraction(hits) / over if over else NAN


def _events(rows, positives, unknown, events):
    """(probability, truth) of each event."""
    for row, y, u in zip(rows, positives, unknown, strict=True):
        if events == "labels":
            yield from ((max(p, 0.0), float(label in y)) for label, p in known(row, u) if label in y or p > -math.inf)
        elif y:
            scored = [(label, p) for label, p in known(row, u) if p > -math.inf]
            best = max((p for _, p in scored), default=0.0)
            tied = [label for label, p in scored if p == best]
            yield best, float(mean(label in y for label in tied)) if tied else 0.0


def calibration_error(rows, positives, unknown, *, bins, events, binning):
    found = sorted(_events(rows, positives, unknown, events))
    if not found:
        return NAN
    if binning == "width":
        edges = [j / bins for j in range(1, bins)]
    else:
        edges = [found[min(math.ceil(Fraction(j * len(found), bins)), len(found) - 1)][0] for j in range(1, bins)]
    members = [[event for event in found if sum(edge <= event[0] for edge in edges) == b] for b in range(bins)]
    return sum(abs(sum(p for p, _ in some) - sum(y for _, y in some)) for some in members) / len(found)


def brier_score(rows, positives, unknown):
    return float(mean((p - y) ** 2 for p, y in _events(rows, positives, unknown, "labels")))


def area_under_risk_coverage(rows, positives, unknown):
    """Mean over all orders of equal confidences."""
    found = []
    for row, y, u in zip(rows, positives, unknown, strict=True):
        if y:
            scored = [(label, p) for label, p in known(row, u) if p > -math.inf]
            best = max((p for _, p in scored), default=-math.inf)
            tied = [label for label, p in scored if p == best]
            found.append((best, 1 - float(mean(label in y for label in tied)) if tied else 1.0))
    if not found:
        return NAN
    descending = [order for order in permutations(found) if all(a[0] >= b[0] for a, b in pairwise(order))]
    areas = [mean(sum(error for _, error in order[:m]) / m for m in range(1, len(order) + 1)) for order in descending]
    return float(sum(areas) / len(areas))

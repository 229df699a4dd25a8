"""The card of a comparison: the winner, what is undecided, sizes, the better rule, caveats, commands that work."""

import shlex
from dataclasses import replace
from pathlib import Path

from shortlist.cli import make_parser
from shortlist.comparison_document import ComparisonDocument
from shortlist.report.comparison.cards import better_rule, caveats, result_card
from tests.report.comparisons import comparison, document


def at_k(content, texts):
    return texts[content.ks.index(content.k)]


def test_the_card_names_the_winner_its_value_and_how_many_seeds_would_tell():
    content = comparison(seeds=3, optimum=True)
    card = result_card(content)
    assert at_k(content, card.headline) == "cross_entropy leads, but not clearly"
    assert at_k(content, card.value) == "10.0%"
    assert at_k(content, card.caption) == "average-3 error, ± 1.0%, over 3 seeds, optimum 5.0%"
    undecided = "Cannot be told apart from it: lml (+2.0 ± 3.0 points; about 7 seeds would tell)."
    assert at_k(content, card.undecided) == undecided
    assert card.caption[0].startswith("average-1 error")


def test_candidates_without_any_difference_need_no_seeds():
    content = document(seeds=3)
    for standing in content["standings"]:
        for tie in standing["ties"]:
            tie["difference"] = {"mean": 0.0, "half_width": 0.0}
    undecided = result_card(ComparisonDocument.from_json(content)).undecided[0]
    assert undecided == "Cannot be told apart from it: lml (equal with every seed)."


def test_one_seed_and_one_candidate_promise_nothing():
    content = comparison()
    assert at_k(content, result_card(content).undecided) == "One seed cannot separate skill from luck: use --seeds 5."
    alone = result_card(comparison(names=("lml",)))
    assert (alone.headline[0], alone.undecided[0]) == ("lml", "")


def test_a_target_without_a_size_has_one_winner_for_every_k():
    content = comparison(sets=True, k=5)
    assert set(result_card(content).headline) == {"cross_entropy is ahead, by one seed"}


def test_sizes_are_those_that_were_achieved_and_the_rows_of_the_fit_are_named():
    content = comparison(seeds=2)
    sizes = result_card(content).size
    assert sizes[1] == (
        "2.02 labels per answer at K = 2 (all candidates: 2.02 to 2.02). "
        "Thresholds are fitted on 200 validation rows and used on 200 test rows."
    )


def with_top_errors(factor):
    content = document(seeds=2)
    for candidate in content["candidates"].values():
        for run in candidate["runs"]:
            errors = run["sets"]["curves"]["errors"]
            errors["top-k"] = [factor * error for error in errors["average-k"]]
    return ComparisonDocument.from_json(content)


def test_the_better_rule_is_the_one_that_misses_less_in_every_seed_at_equal_size():
    each, shared, same = with_top_errors(0.9), with_top_errors(1.1), with_top_errors(1.0)
    found = [better_rule(content, "cross_entropy", 2) for content in (each, shared, same)]
    assert found == ["top-k", "average-k", None]
    assert at_k(each, result_card(each).rule).startswith("3 in every answer misses 9.5%")
    assert at_k(shared, result_card(shared).rule).startswith("3 on average misses 10.5%")
    assert at_k(same, result_card(same).rule).startswith("Neither:")
    assert result_card(comparison("large k")).rule == [""] * 4  # Its curves have no such sizes.


def test_caveats_say_what_the_numbers_do_not():
    quiet = document(seeds=3)
    quiet["data"]["parts"]["test"] = 5000
    for candidate in quiet["candidates"].values():
        for run in candidate["runs"]:
            best = max(row["average3_accuracy"] for row in run["history"][:-1])
            run["history"][-1]["average3_accuracy"] = 1.005 * best  # Better, but hardly.
            run["sets"]["classes"]["count"] = [5] * 6
    assert caveats(ComparisonDocument.from_json(quiet)) == []
    noisy = document(seeds=2, audit=True)
    for candidate in noisy["candidates"].values():
        for run in candidate["runs"]:
            run["sets"]["by_k"][2]["average_size"] = 2.5
    noisy["candidates"]["cross_entropy"]["runs"][0]["sets"]["classes"]["count"][0] = 0
    assert caveats(ComparisonDocument.from_json(noisy)) == [
        "2 seeds decide little: use --seeds 5.",
        "Only 200 rows were evaluated.",
        "Validation and test rows differ: answers have 2.50 to 2.50 labels, not 3. For a fair comparison, see the "
        "errors at equal size.",
        "Still improving at the last epoch: cross_entropy, lml. More --epochs may help.",
        "1 label of the evaluated rows has no training row.",
        "Label sets that an output layer can never produce: cross_entropy 15.",
    ]


def test_commands_use_the_model_of_the_winner_and_are_understood():
    parser = make_parser()
    for content in (comparison(), comparison(sets=True, kind="images"), with_top_errors(0.9)):
        steps = result_card(content, Path("out/my flowers")).steps
        for step in steps:
            name, command, *arguments = shlex.split(step.command)
            assert name == "shortlist"
            assert arguments[0] == "out/my flowers/cross_entropy-0"
            parser.parse_args([command, *arguments])
    assert steps[0].command.endswith("--rule top-k --k 3 --output rule.json")
    assert "--rule rule.json" in steps[1].command
    assert " MODEL " in result_card(replace(comparison(), title="x")).steps[0].command

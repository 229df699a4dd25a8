"""What a page says first: numbers of the document, for the questions that it answers."""

import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from shortlist.cli import main
from shortlist.comparison_document import ComparisonDocument, MeanInterval
from shortlist.report.comparison.cards import next_steps
from shortlist.report.comparison.highlights import highlight_panel, highlights, highlights_by_k, loss_sentence
from shortlist.report.comparison.page import report_page
from tests.report.comparisons import DOCUMENTS, comparison, document


def answers(content: ComparisonDocument) -> dict:
    return {each.question: each for each in highlights(content)}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_answer_has_numbers_a_source_and_one_chart(name):
    for each in highlights(comparison(name)):
        assert each.before
        assert each.caption
        assert each.source
        assert each.chart.series
        assert "chart" not in each.to_json()


def test_the_rule_compares_the_sets_of_one_model_at_one_size():
    content = comparison(seeds=2, baseline="lml", optimum=True)
    found = answers(content)["rule"]
    seeds = [run.sets for run in content.candidates["lml"].runs]
    at = content.ks.index(content.k)
    top = sum(sets.by_k[at].top_error for sets in seeds) / 2
    average = sum(sets.by_k[at].error for sets in seeds) / 2
    size = sum(sets.error_control.average_size for sets in seeds) / 2
    assert (found.before, found.after) == (f"{100 * top:.1f}%", f"{100 * average:.1f}%")
    assert "one lml model" in found.caption
    assert f"may miss 10% have {size:.1f} labels" in found.text
    assert "The exact probabilities would miss" in found.text


def test_a_fractional_k_has_no_sets_of_one_size_to_compare_with():
    assert "rule" not in answers(comparison("fractional k"))


def test_the_usual_loss_is_enough_unless_another_is_significantly_better():
    content = comparison(seeds=3, baseline="cross_entropy", names=("cross_entropy", "lml", "svm"))
    found = answers(content)["loss"]
    assert found.after == ""
    assert loss_sentence(content) == (
        "cross_entropy is enough, with 10.0% average-3 error: lml and svm are not significantly better."
    )
    gain = {"average3_error": MeanInterval(-0.05, 0.01)}
    better = replace(content.candidates["svm"], differences=gain)
    content = replace(content, candidates={**content.candidates, "svm": better})
    assert "svm (−5.0 ± 1.0 points)" in (loss_sentence(content) or "")
    assert "lml" not in (loss_sentence(content) or "")


def test_beside_other_models_the_usual_loss_is_only_compared_within_its_own():
    content = comparison(seeds=3, baseline="cross_entropy", names=("cross_entropy", "lml", "svm"))
    other = replace(content.candidates["svm"], options={**content.candidates["svm"].options, "head": "dft"})
    content = replace(content, candidates={**content.candidates, "svm": other})
    assert loss_sentence(content) == (
        "with the same model, lml is not significantly better than cross_entropy (10.0% average-3 error)."
    )


def test_a_gain_is_no_gain_with_one_seed_or_an_interval_that_contains_0():
    content = comparison(seeds=3, baseline="cross_entropy")
    for width in (None, 0.06):
        gain = {"average3_error": MeanInterval(-0.05, width)}
        changed = replace(content.candidates["lml"], differences=gain)
        found = replace(content, candidates={**content.candidates, "lml": changed})
        assert (loss_sentence(found) or "").startswith("cross_entropy is enough")


def test_other_models_and_the_usual_loss_trained_otherwise_are_no_rivals():
    content = comparison(seeds=3, baseline="cross_entropy", names=("cross_entropy", "lml", "early"))
    candidates = dict(content.candidates)
    candidates["lml"] = replace(candidates["lml"], options={**candidates["lml"].options, "head": "dft"})
    candidates["early"] = replace(candidates["early"], options={**candidates["early"].options, "loss": "cross_entropy"})
    assert loss_sentence(replace(content, candidates=candidates)) is None
    assert loss_sentence(comparison(names=("lml", "svm"))) is None


def test_the_output_layer_with_impossible_sets_is_compared_with_the_same_loss():
    content = comparison(sets=True, audit=True, names=("bce", "dft"), baseline="bce", k=5)
    assert "head" not in answers(content)  # The losses differ.
    same = replace(content.candidates["dft"], options=content.candidates["bce"].options)
    found = answers(replace(content, candidates={**content.candidates, "dft": same}))["head"]
    assert found.numbers == "15 → 0"
    assert "of 45 label sets" in found.caption
    assert [series.x for series in found.chart.series] == [(100.0,), (150.0,)]


def test_the_questions_of_a_document_choose_what_is_shown_and_in_which_order():
    options = {"seeds": 3, "baseline": "cross_entropy"}
    assert list(answers(comparison(**options))) == ["rule", "loss"]
    assert list(answers(comparison(**options, questions=("loss",)))) == ["loss"]


def test_the_answer_about_rules_follows_k_and_others_do_not():
    content = comparison("baseline")
    rule, loss = highlights_by_k(content)
    assert [each.chart.references[0].x for each in rule] == content.ks
    assert rule[content.ks.index(content.k)].numbers == answers(content)["rule"].numbers
    assert len({each.caption for each in rule}) == len(content.ks)
    assert len(loss) == 1
    assert len(highlight_panel(rule).charts["all"]) == len(content.ks)


def test_the_page_holds_the_answers_and_ends_with_commands():
    page = report_page([comparison("baseline")])
    answer = answers(comparison("baseline"))["rule"]
    assert page.index('id="job-1"') < page.index(answer.caption) < page.index('id="your-data"')
    assert 'id="job-1-highlight-rule"' in page
    assert "Flowers &lt;i&gt;" in page


def test_documents_written_before_there_were_answers_are_still_read():
    content = document()
    for key in ("title", "questions", "baseline", "labels", "standings"):
        del content[key]
    for candidate in content["candidates"].values():
        del candidate["differences"]
        for run in candidate["runs"]:
            for key in ("error_control", "labels", "recalibrated", "advice", "groups"):
                del run["sets"][key]
    for example in content["examples"]:
        del example["rarest"]
    old = ComparisonDocument.from_json(content)
    assert list(answers(old)) == ["rule"]
    assert "cross_entropy is ahead, by one seed" in report_page([old])


@pytest.mark.slow
def test_the_commands_for_ones_own_data_work_as_they_are_shown(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = ("red", "green", "blue", "white", "black", "grey", "pink", "gold")
    rows = [(words[i % 8], words[(i * 3 + 1) % 8]) for i in range(240)]
    Path("DATA.csv").write_text("text,label\n" + "\n".join(f"{a} {b} thing,{a}" for a, b in rows) + "\n")
    Path("NEW.csv").write_text("text\nred thing\nblue gold thing\n")
    Path("SETS.csv").write_text("text,labels\n" + "\n".join(f"{a} {b} thing,{a};{b}" for a, b in rows) + "\n")
    for step in next_steps([comparison(), comparison(sets=True)]):
        name, *arguments = shlex.split(step.command)
        assert name == "shortlist"
        assert main(arguments) == 0, step.command
        capsys.readouterr()
    assert len(Path("sets.jsonl").read_text().splitlines()) == 2

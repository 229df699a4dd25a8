"""The document on scale shows what the benchmarks measured."""

from benchmarks.cost_model import Step
from benchmarks.scale_tables import DOCUMENT, TABLES, filled


def test_every_table_of_the_document_is_that_of_the_results():
    text = DOCUMENT.read_text()
    assert filled(text) == text
    assert all(text.count(f"<!-- table: {name} -->") == 1 for name in TABLES)


def test_a_chunked_head_computes_the_logits_again_and_sends_nothing_alone():
    plain, chunked = (Step(8, 1000, 16, "bce", head) for head in ("plain", "chunked"))
    assert plain.operations == 6 * 8 * 1000 * 16
    assert chunked.operations == 8 * 8 * 1000 * 16
    assert plain.messages == plain.message_bytes == 0


def test_more_processes_share_labels_and_not_rows():
    alone, four = (Step(8, 1000, 16, "lml_nll", processes=processes) for processes in (1, 4))
    assert four.operations == alone.operations / 4
    assert four.message_bytes == Step(8, 9000, 16, "lml_nll", processes=2).message_bytes > 0

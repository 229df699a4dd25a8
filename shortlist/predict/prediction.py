"""From scores and a rule to sets of labels: block by block in memory, or into a file that can be resumed."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from shortlist.errors import InputError
from shortlist.files import writing
from shortlist.fingerprint import digest_values, software_versions
from shortlist.formatting import format_count
from shortlist.predict.files.resumable_output import partial_folder, resumable_output
from shortlist.predict.files.set_files import FORMATS, SetRows, set_writer
from shortlist.predict.scores import ScoreBlock, Scores
from shortlist.sets import PredictionSets, SetRule, load_rule
from shortlist.sets.rule import Draw
from shortlist.sets.taxonomic.rule import TaxonomyRule


class PredictionSummary(NamedTuple):
    """What `predict_sets` wrote.

    Attributes:
        rows: how many sets.
        resumed: how many of them an earlier call had written.
        labels: in all sets together.
        empty: sets without labels.
    """

    rows: int
    resumed: int
    labels: int
    empty: int

    @property
    def average_size(self) -> float:
        """Labels per set."""
        return self.labels / self.rows


def iterate_sets(
    scores: Scores,
    rule: SetRule,
    *,
    seed: int | None = None,
    draw: Draw | None = None,
    nodes: bool = False,
    progress: bool = False,
) -> Generator[tuple[ScoreBlock, PredictionSets], None, None]:
    """Yield each block of scores with the sets of its rows.

    Args:
        scores: of any number of rows.
        rule: fitted on scores of the same kind.
        seed: of the random numbers that break ties at a conformal threshold; fresh by default.
        draw: instead of ``seed``, what several calls share, as in `SetRule.predict`.
        nodes: whether a rule on a taxonomy answers with nodes instead of labels.
        progress: whether to show the progress on standard error.

    Example:
        >>> from shortlist.predict import tensor_scores
        >>> from shortlist.sets import TopK
        >>> scores = tensor_scores(torch.tensor([[0.7, 0.2, 0.1], [0.1, 0.3, 0.6]]), from_logits=False)
        >>> rule = TopK(2).fit(torch.eye(3), from_logits=False)
        >>> [sets.labels.tolist() for _, sets in iterate_sets(scores, rule)]
        [[0, 1, 2, 1]]
    """
    check_rule(rule, scores)
    draw = Draw(_generator(seed)) if draw is None else draw
    with scores.progress("predicting", shown=progress) as blocks:
        for block in blocks:
            yield block, _sets_of(rule, block, draw, nodes=nodes)


def predict_sets(
    scores: Scores,
    rule: SetRule,
    output: str | Path,
    *,
    format: str | None = None,
    seed: int | None = None,
    resume: bool = False,
    progress: bool = False,
) -> PredictionSummary:
    """Write the set of labels of each row to a file, in bounded memory; of a rule on a taxonomy, the set of nodes.

    Finished rows are kept in the folder ``OUTPUT.partial`` until the file is complete, and stay there if the call is
    interrupted, killed or fails: the same call resumes after them. Partial output of other scores, another rule or
    other options is discarded.

    Args:
        scores: of any number of rows.
        rule: fitted on scores of the same kind.
        output: ``.jsonl``, with an object per row; ``.csv``, with a line per row; or ``.parquet``.
        format: ``"jsonl"``, ``"csv"`` or ``"parquet"``; the suffix of ``output`` by default.
        seed: of the random numbers that break ties at a conformal threshold; fresh by default.
        resume: refuse to begin anew.
        progress: whether to show the progress on standard error.

    Returns:
        Counts of rows and labels.

    Raises:
        InputError: names what is wrong with the scores, the rule or the output.
        KeyboardInterrupt: says how many rows are kept.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> from shortlist.predict import tensor_scores
        >>> from shortlist.sets import TopK
        >>> probs = torch.tensor([[0.75, 0.25, 0.0], [0.125, 0.25, 0.625]])
        >>> scores = tensor_scores(probs, from_logits=False, names=["daisy", "rose", "tulip"])
        >>> with TemporaryDirectory() as folder:
        ...     summary = predict_sets(scores, TopK(1).fit(probs, from_logits=False), f"{folder}/sets.jsonl")
        ...     print(Path(folder, "sets.jsonl").read_text(), end="")
        {"row": 0, "labels": ["daisy"], "scores": [0.75]}
        {"row": 1, "labels": ["tulip"], "scores": [0.625]}
        >>> summary.rows, summary.average_size
        (2, 1.0)
    """
    output = Path(output)
    format = output_format(output, format)
    check_rule(rule, scores)
    writer = set_writer(format, answer_names(rule, scores))
    fingerprint = _fingerprint(scores, rule, output, format, seed)
    done = None
    try:
        with writing(output), resumable_output(output, fingerprint, resume=resume) as partial:
            done = before = partial.finished
            state = before.random_state
            draw = Draw(_generator(seed)) if state is None else Draw.from_state(state)
            with scores.progress("predicting", start=before.rows, shown=progress) as blocks:
                for block in blocks:
                    sets = _sets_of(rule, block, draw, nodes=True)
                    writer.append(set_rows(block, sets), partial)
                    empty = int((sets.sizes == 0).sum())
                    partial.finish_rows(len(sets), len(sets.labels), empty, draw.state())
                    done = partial.finished
            partial.publish(writer.convert)
    except KeyboardInterrupt as error:
        if done is None or done.rows == 0:
            raise
        raise KeyboardInterrupt(f"{format_count(done.rows, 'row')} are kept") from error
    return PredictionSummary(done.rows, before.rows, done.labels, done.empty)


def answer_names(rule: SetRule, scores: Scores) -> Sequence[str] | None:
    """Return the names that files of sets use: those of the scores, or of a rule's taxonomy."""
    return rule.taxonomy.names if isinstance(rule, TaxonomyRule) else scores.names


def _sets_of(rule: SetRule, block: ScoreBlock, draw: Draw, *, nodes: bool) -> PredictionSets:
    if nodes and isinstance(rule, TaxonomyRule):
        return rule.predict_nodes(block.scores, draw=draw)
    try:
        return rule.predict(block.scores, draw=draw, **block.given)
    except ValueError as error:
        if not block.given:
            raise
        # What came with the rows does not suit the rule, such as a group that it does not know.
        raise InputError(f"rows from {block.start} on: {error}") from error


def set_rows(block: ScoreBlock, sets: PredictionSets) -> SetRows:
    """Return the sets of a block with the ids or numbers of its rows, as files of sets hold them."""
    return SetRows("row" if block.ids is None else "id", block.ids or block.numbers or block.rows, sets)


def output_format(output: Path, format: str | None) -> str:
    """Return the format of a file of sets: the given one, or its suffix."""
    suffix = output.suffix.lower().removeprefix(".")
    if format is None and suffix not in FORMATS:
        raise InputError(f"`{output}` must end in .jsonl, .parquet or .csv, or the output format must be given.")
    if format is not None and format not in FORMATS:
        raise InputError(f"the format must be one of {', '.join(FORMATS)}; got {format!r}.")
    return format or suffix


def read_rule(path: str | Path, scores: Scores, *, absent: int = 0) -> SetRule:
    """Read a rule that was fitted on as many labels and on the same kind of scores.

    Args:
        path: the file.
        scores: that it will be applied to.
        absent: how many of their labels, the last ones, the rule does not know.

    Raises:
        InputError: names the file and what does not match.
    """
    rule = load_rule(path)
    check_rule(rule, scores, name=str(path), absent=absent)
    return rule


def check_rule(rule: SetRule, scores: Scores, *, name: str = "rule", absent: int = 0) -> None:
    """Raise InputError, which names the rule by ``name``, if it was not fitted on scores like these."""
    known = scores.num_labels - absent
    if rule.num_labels != known:
        # Usually a column of ids that passes for a label.
        hint = f" (is the column {scores.names[0]!r} one of ids?)" if scores.names else ""
        raise InputError(f"`{name}` is for {rule.num_labels} labels, but `{scores.path}` has {known}{hint}.")
    if rule.from_logits != scores.from_logits:
        kinds = {True: "logits", False: "probabilities"}
        raise InputError(
            f"`{name}` was calibrated on {kinds[bool(rule.from_logits)]}, but `{scores.path}` holds "
            f"{kinds[scores.from_logits]}."
        )


def _generator(seed: int | None) -> torch.Generator | None:
    return None if seed is None else torch.Generator().manual_seed(seed)


def _fingerprint(scores: Scores, rule: SetRule, output: Path, format: str, seed: int | None) -> Mapping[str, Any]:
    """Identify everything that the rows depend on."""
    fitted = {name: buffer.tolist() for name, buffer in rule.named_buffers()}
    options = {**rule.options(), "link": rule.link, "min_size": rule.min_size}
    return {
        **scores.fingerprint((output, partial_folder(output))),
        "rule": digest_values([type(rule).__name__, options, fitted]),
        "format": format,
        "seed": seed,
        "versions": software_versions(),
    }

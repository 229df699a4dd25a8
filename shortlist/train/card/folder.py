"""The card in a model's folder: written whenever the folder changes, so that it describes what the folder holds."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shortlist.files import replacing
from shortlist.fingerprint import digest
from shortlist.sets.rule_file import read_rule
from shortlist.train.card.facts import CardFacts, audit_facts
from shortlist.train.card.page import KEPT, CardSubject, card_text
from shortlist.typed_json import decode, encode

if TYPE_CHECKING:
    from shortlist.audit import AuditReport

CARD = "README.md"
AUDIT = "audit.json"
# The key of the facts in what `model.json` keeps about a model.
FACTS = "card"
# An audit of more numbers, of the layer and the certificates, is not kept with the model.
_MOST_KEPT = 1 << 21


def write_card(folder: str | Path, document: Mapping[str, Any] | None = None) -> Path | None:
    """Write the card of a model from what its folder holds.

    What the user wrote below the last line of the card is kept. A README.md without that line is the user's own and is
    left alone; delete it for a card.

    Args:
        folder: of a model that `shortlist.train.save_model` wrote, in this release or an earlier one.
        document: what ``model.json`` will hold; by default what it holds.

    Returns:
        The card; None if there is a README.md that is not one.

    Raises:
        InputError: if a file of the folder is damaged.
    """
    folder = Path(folder)
    path, added = folder / CARD, "\n"
    if path.is_file():
        _, ours, added = path.read_text(encoding="utf-8", errors="replace").partition(KEPT)
        if not ours:
            return None
    content: Mapping[str, Any] = document or json.loads((folder / "model.json").read_text())
    rule = calibration = None
    if content.get("has_rule"):
        rule = read_rule(folder / "rule.json"), digest((folder / "rule.json").read_bytes())
    if content.get("has_calibration"):
        calibration = json.loads((folder / "calibration.json").read_text()).get("kind")
    subject = CardSubject(content, _facts(content, folder), rule, calibration, (folder / AUDIT).is_file())
    with replacing(path) as partial:
        partial.write_text(card_text(subject).rstrip("\n") + added, encoding="utf-8")
    return path


def recorded_facts(facts: CardFacts, *, parameters: str, rule: Path) -> dict[str, Any]:
    """The facts as ``model.json`` keeps them, with the digests of what they are about.

    Args:
        facts: of `shortlist.train.card.facts.measured`.
        parameters: the digest of the parameters.
        rule: the file of the rule whose sets were measured.
    """
    sets = facts.sets
    sets = replace(sets, rule=digest(rule.read_bytes())) if sets is not None and rule.is_file() else None
    return encode(replace(facts, parameters=parameters, sets=sets))


def keep_report(folder: Path, report: AuditReport | None) -> None:
    """Put the certificates of an audit into a model's folder if they are not too many, in place of former ones."""
    if report is not None and _size(report) <= _MOST_KEPT:
        report.save(folder / AUDIT)
    else:
        (folder / AUDIT).unlink(missing_ok=True)


def record_audit(folder: str | Path, report: AuditReport, *, data: str) -> None:
    """Put an audit of a model into its folder and its card; nothing happens if no figures of the model are recorded.

    Args:
        folder: of the model.
        report: of all distinct label sets of ``data``.
        data: what the card calls them.
    """
    folder = Path(folder)
    document = json.loads((folder / "model.json").read_text())
    facts = _facts(document, folder)
    if facts is None:
        return
    facts = replace(facts, audit=audit_facts(report, data=data, distinct=len(report)), not_audited=None)
    document["about"][FACTS] = encode(facts)
    keep_report(folder, report)
    with replacing(folder / "model.json") as partial:
        partial.write_text(json.dumps(document, indent=1))
    write_card(folder)


def _facts(document: Mapping[str, Any], folder: Path) -> CardFacts | None:
    """The recorded facts, unless they are about other parameters."""
    found = document.get("about", {}).get(FACTS)
    if found is None:
        return None
    facts = decode(CardFacts, found, file=folder / "model.json")
    return facts if facts.parameters == document.get("parameters") else None


def _size(report: AuditReport) -> int:
    """How many numbers the file of a report holds, or a few more."""
    return report.system.weight.size + len(report) * sum(report.system.weight.shape)

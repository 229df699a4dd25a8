"""Published claims put to the test: experiments, their trials, verdicts, and the document that tells of them."""

from shortlist.evidence.experiment import Experiment, Scale, read_experiments
from shortlist.evidence.lab import Lab
from shortlist.evidence.outcome import Claim, Figure, Outcome, Table
from shortlist.evidence.tuning import Choice, tuned
from shortlist.evidence.verdicts import Finding, alike, all_of, at_least, beats, grows

__all__ = [
    "Choice",
    "Claim",
    "Experiment",
    "Figure",
    "Finding",
    "Lab",
    "Outcome",
    "Scale",
    "Table",
    "alike",
    "all_of",
    "at_least",
    "beats",
    "grows",
    "read_experiments",
    "tuned",
]

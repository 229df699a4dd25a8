"""Tests of published claims: experiments, their trials and verdicts, and the document that reports them."""

from shortlist.evidence.experiment import Claim, Experiment, Figure, Outcome, Scale, Table, read_experiments
from shortlist.evidence.lab import Choice, Lab, tuned
from shortlist.evidence.verdicts import Finding, alike, all_of, at_least, at_most, beats, grows

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
    "at_most",
    "beats",
    "grows",
    "read_experiments",
    "tuned",
]

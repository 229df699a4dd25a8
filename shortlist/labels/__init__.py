"""The one reading of labels, made once per call: every loss, metric and set rule takes its target as `Labels`."""

from shortlist.labels.forms import TargetForm, stored_entries, target_form
from shortlist.labels.labels import Labels
from shortlist.labels.reading import list_labels, read_labels

__all__ = ["Labels", "TargetForm", "list_labels", "read_labels", "stored_entries", "target_form"]

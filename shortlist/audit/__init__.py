"""Which label sets a layer can never output, with proof."""

from shortlist.audit.certificates import Combination, Theorem, Witness
from shortlist.audit.report import AuditReport
from shortlist.audit.run import audit

__all__ = ["AuditReport", "Combination", "Theorem", "Witness", "audit"]

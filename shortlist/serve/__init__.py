"""A service that answers with sets of labels: models tried, their rules chosen and their layers audited, over HTTP."""

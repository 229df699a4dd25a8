"""Experimental procedures: splits, long tails, label noise, hidden labels, label subsets and crowd votes."""

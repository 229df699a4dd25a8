"""The label axis of the logits: in one tensor, in recomputed blocks, or sharded over processes.

An operator gets blocks of logits and reductions over processes from an axis, so its mathematics is the same in every
case.
"""

"""Kernels: faster implementations of a few operators for one kind of device; so far numba, for float32 on the CPU.

A kernel makes all passes over a row while the row is in cache; tensor operations make one pass over the whole batch at
a time. A kernel solves ordinary rows and reports those that did not converge, which the caller then solves.
`chooser.py` decides whether to use a kernel.
"""

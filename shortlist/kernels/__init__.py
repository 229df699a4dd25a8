"""Kernels: faster forms of a few operators, for one kind of device each. So far numba's, for float32 on the CPU.

A kernel makes all passes over a row while the row is in cache, where tensor operations make one pass over the batch at
a time. It solves ordinary rows and reports those it did not settle; the caller settles them. `chooser.py` decides
whether a kernel serves a call.
"""

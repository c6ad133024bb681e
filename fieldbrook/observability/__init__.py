"""Logs, metrics, health, and the fault points of tests.

In: records, counts and conditions of every process.
Out: log lines, a table of numbers in shared memory, the health board.
Open first: `metrics.py`, then `health.py`.
"""

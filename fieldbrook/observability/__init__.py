"""Logs, metrics, health, and the fault points of tests.

In: log records, counts and health conditions of every process.
Out: log lines, a table of numbers in shared memory, the health board.
Open first: `metrics.py`, then `metrics_table.py` and `health.py`.
"""

"""Routes about monitors, contract ABIs and transactions.

In: typed values from `framework`.
Out: records and commands of the registry; requests to a chain's process.
Open first: `monitors.py`.
"""

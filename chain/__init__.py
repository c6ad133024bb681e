"""EVM chains: reading blocks and logs, running monitors, and sending transactions.

In: the chains of the settings; requests of projects.
Out: events of monitors; transactions on the chain.
Open first: `process.py`, the actor of one chain, which combines the folders.
"""

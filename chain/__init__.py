"""EVM chains: reading them, watching them, and sending transactions to them.

In: the chains of the settings; requests of projects.
Out: events of monitors; transactions on the chain.
Open first: `process.py`, the actor of one chain, which puts the folders together.
"""

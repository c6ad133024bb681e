"""The commit of a batch of events: its effects, its encoding, and its writes until a checkpoint.

A batch is committed when its record is in the journal. Then it waits in memory, where reads find
it, until a checkpoint writes it into LMDB together with all other waiting batches.

In: the effects of a batch; batches of the journal after a crash.
Out: encoded batches for the journal; merged effects for one LMDB transaction.
Open first: `batch.py`, then `pending.py`.
"""

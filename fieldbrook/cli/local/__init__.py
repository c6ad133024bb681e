"""Commands that work on files of this machine, without a node.

In: arguments; a data folder or an applet's folder.
Out: files; reports about their content.
Open first: `applets/` for authors of applets, `backup.py` for operators of nodes.
"""

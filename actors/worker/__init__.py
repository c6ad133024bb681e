"""Workers: processes that run the actors of many projects.

`core` decides what happens next, `runners` are the threads that share
the work, `actor` is the Thespian actor around them.
"""

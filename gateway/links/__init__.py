"""Sending events from a gateway to the projects: queues, and the links to the workers.

In: admitted events, and the routes of projects from the supervisor.
Out: frames to workers; one outcome per event, in order for each publisher.
Open first: `project_client.py`, then `worker_link.py`.
"""

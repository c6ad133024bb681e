"""The way of events from a gateway to the projects: queues, and the links to the workers.

In: events that are admitted, and the routes of projects from the supervisor.
Out: frames to workers; one outcome per event, in the order of each publisher.
Open first: `project_client.py`, then `worker_link.py`.
"""

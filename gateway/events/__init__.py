"""An event on its way in: decoded, admitted, queued, handed to its project, answered.

In: a request's body and head, or an MQTT message, in one of the three forms.
Out: a frame to the project's process; one result per event, or an error that names the cause.
Open first: `handling.py`, then `message.py`, `admission.py` and `project_client.py`.
"""

"""Incoming events: decoding, admission, submission to the project's client, answers.

In: a request's body and head, or an MQTT message, in one of the three forms.
Out: an event for the project; one result per event, or an error that names the cause.
Open first: `handling.py`, then `message.py` and `admission.py`.
"""

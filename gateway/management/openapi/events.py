"""The event endpoint in the OpenAPI document. It is no management route and takes three forms.

Source: interface document, section 3; docs/reference/clients.md.
"""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]

_TEXT: Json = {"type": "string"}
_REPLAYED: Json = {"type": "boolean", "description": "true: a stored result; absent otherwise"}
_NUMBER: Json = {"type": "integer"}

_MESSAGE: Json = {
    "type": "object",
    "description": "One event. `pub_id` and `token` belong together.",
    "properties": {
        "header": {
            "type": "object",
            "properties": {
                "pub_id": {"type": "string", "description": "the publisher's key or id"},
                "token": {"type": "string", "description": "the publisher's token"},
                "event_type": {"type": "string", "description": "DEFAULT when absent or empty"},
                "pub_time": {"type": "integer", "description": "Unix time, s or ms"},
                "event_id": {
                    "type": "string",
                    "description": "of 16 characters or more: sent again with the same type, time "
                    "and payload it runs once; a shorter one is a label for the history",
                },
            },
            "required": ["pub_id", "token"],
        },
        "payload": {
            "type": "string",
            "contentEncoding": "base64",
            "description": "empty when absent",
        },
    },
    "required": ["header"],
}

_HANDLED: Json = {
    "type": "object",
    "properties": {
        "instanceID": _TEXT,
        "code": {"type": "integer", "description": "the handler's; -1: it did not end"},
        "errMsg": _TEXT,
    },
    "required": ["instanceID", "code", "errMsg"],
}

SCHEMAS: Json = {
    "EventMessage": _MESSAGE,
    "EventBatch": {
        "type": "object",
        "properties": {
            "events": {"type": "array", "items": {"$ref": "#/components/schemas/EventMessage"}}
        },
        "required": ["events"],
    },
    "EventPush": {
        "type": "array",
        "description": "Events of many devices, with `eventType=DA-TA_PU-SH` and an access key.",
        "maxItems": 4096,
        "items": {
            "type": "object",
            "properties": {
                "device_id": {"type": "string", "minLength": 1},
                "event_type": _TEXT,
                "payload": {"type": "string", "description": "taken verbatim"},
            },
            "required": ["device_id", "payload"],
        },
    },
    "EventHandled": _HANDLED,
    "EventMessageReply": {
        "type": "object",
        "properties": {
            "results": {"type": "array", "items": {"$ref": "#/components/schemas/EventHandled"}}
        },
        "required": ["results"],
    },
    "EventBatchReply": {
        "type": "array",
        "description": "One for each message, in their order.",
        "items": {
            "type": "object",
            "properties": {
                "projectName": _TEXT,
                "pubID": {"type": "string", "description": "the publisher's id"},
                "pubName": _TEXT,
                "eventID": _TEXT,
                "errMsg": _TEXT,
                "wasmResults": {
                    "type": ["array", "null"],
                    "items": {"$ref": "#/components/schemas/EventHandled"},
                },
                "replayed": _REPLAYED,
            },
            "required": ["projectName", "eventID", "wasmResults"],
        },
    },
    "EventRawReply": {
        "type": "object",
        "properties": {
            "channel": _TEXT,
            "publisherID": _TEXT,
            "publisherKey": _TEXT,
            "eventID": _TEXT,
            "timestamp": _NUMBER,
            "results": {
                "type": ["array", "null"],
                "description": "null when no strategy matched",
                "items": {"$ref": "#/components/schemas/EventRawHandled"},
            },
            "error": {"type": "string", "description": "InvalidEventChannel, or absent"},
        },
        "required": [
            "channel",
            "publisherID",
            "publisherKey",
            "eventID",
            "timestamp",
            "results",
        ],
    },
    "EventRawHandled": {
        "type": "object",
        "properties": {
            "appletName": _TEXT,
            "instanceID": _TEXT,
            "handler": _TEXT,
            "returnValue": {"type": "null"},
            "code": _NUMBER,
            "error": _TEXT,
        },
        "required": ["appletName", "instanceID", "handler", "returnValue", "code"],
    },
    "EventPushReply": {
        "type": "array",
        "description": "One for each event, in their order.",
        "items": {
            "type": "object",
            "properties": {
                "index": _NUMBER,
                "results": {
                    "type": ["array", "null"],
                    "items": {"$ref": "#/components/schemas/EventRawHandled"},
                },
                "replayed": _REPLAYED,
            },
            "required": ["index", "results"],
        },
    },
}

_DESCRIPTION = (
    "Which form a request has: with `eventType` in the query it is raw (or, of type "
    "DA-TA_PU-SH, a data push); else a JSON object with `header` is a message and one with "
    "`events` a batch, whatever the Content-Type says, even with a token beside it if the header "
    "has one, too; else, with a token or in a public project, the body is a raw payload of type "
    "DEFAULT; else it is a malformed message. Messages and batches say in themselves who sends. "
    "201 is answered when the event's effects are on disk. After 429 and 503 nothing was taken "
    "(but for OutcomeUnknown): send again with the same Idempotency-Key, or event id of 16 "
    "characters or more."
)


def _query(name: str, what: str) -> Json:
    return {"name": name, "in": "query", "description": what, "schema": _TEXT}


def _either(*names: str) -> Json:
    return {"anyOf": [{"$ref": f"#/components/schemas/{name}"} for name in names]}


def paths() -> Json:
    """The path of the endpoint with its only operation."""
    failures = (400, 401, 403, 404, 413, 422, 429, 500, 503)
    operation = {
        "operationId": "HandleEvent",
        "summary": "Send an event, a batch of them, or a push of many devices' events",
        "description": _DESCRIPTION,
        "tags": ["event"],
        "security": [{"publisher": []}, {"tokenInQuery": []}, {}],
        "parameters": [
            {
                "name": "channel",
                "in": "path",
                "required": True,
                "description": "the project's name, with its owner's prefix or without",
                "schema": {"type": "string", "minLength": 1},
            },
            _query("eventType", "makes the body a raw payload"),
            _query("eventID", "of a raw event"),
            _query("timestamp", "of a raw event: any 64-bit integer"),
            {
                "name": "Idempotency-Key",
                "in": "header",
                "description": "sent again with the same key a request runs what has not run",
                "schema": {"type": "string", "minLength": 1, "maxLength": 257},
            },
        ],
        "requestBody": {
            "content": {
                "application/json": {"schema": _either("EventMessage", "EventBatch", "EventPush")},
                "application/octet-stream": {},
            },
        },
        "responses": {
            "201": {
                "description": "Handled; a handler that failed has the code -1 and the reason",
                "headers": {
                    "X-Event-Id": {"schema": _TEXT},
                    "Idempotency-Replayed": {
                        "description": "true: all results are stored ones; absent otherwise",
                        "schema": _TEXT,
                    },
                },
                "content": {
                    "application/json": {
                        "schema": _either(
                            "EventMessageReply",
                            "EventBatchReply",
                            "EventRawReply",
                            "EventPushReply",
                        )
                    }
                },
            },
            **{str(status): {"$ref": f"#/components/responses/{status}"} for status in failures},
        },
    }
    return {"/event/{channel}": {"post": operation}}

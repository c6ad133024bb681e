"""The event endpoint in the OpenAPI document. It is not a management route, and requests have three
forms.

Source: interface document, section 3; docs/reference/clients.md.
"""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]

_TEXT: Json = {"type": "string"}
_REPLAYED: Json = {
    "type": "boolean",
    "description": "true if this is a stored result; absent otherwise",
}
_NUMBER: Json = {"type": "integer"}

_MESSAGE: Json = {
    "type": "object",
    "description": "One event. `token` must be the token of the publisher `pub_id`.",
    "properties": {
        "header": {
            "type": "object",
            "properties": {
                "pub_id": {"type": "string", "description": "the publisher's key or id"},
                "token": {"type": "string", "description": "the publisher's token"},
                "event_type": {
                    "type": "string",
                    "description": "an absent or empty type means DEFAULT",
                },
                "pub_time": {
                    "type": "integer",
                    "description": "Unix time in seconds or milliseconds",
                },
                "event_id": {
                    "type": "string",
                    "description": "an id of at least 16 characters makes the event idempotent: "
                    "a repeated event with the same id, type, time and payload is not run again. "
                    "A shorter id is only a label in the history",
                },
            },
            "required": ["pub_id", "token"],
        },
        "payload": {
            "type": "string",
            "contentEncoding": "base64",
            "description": "an absent payload is empty",
        },
    },
    "required": ["header"],
}

_HANDLED: Json = {
    "type": "object",
    "properties": {
        "instanceID": _TEXT,
        "code": {
            "type": "integer",
            "description": "the return code of the handler; -1 if it failed",
        },
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
        "description": "Events of many devices. The query needs `eventType=DA-TA_PU-SH`, and the "
        "request an access key.",
        "maxItems": 4096,
        "items": {
            "type": "object",
            "properties": {
                "device_id": {"type": "string", "minLength": 1},
                "event_type": _TEXT,
                "payload": {"type": "string", "description": "the payload as it is, not base64"},
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
        "description": "One result per message, in the same order.",
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
        "description": "One result per event, in the same order.",
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
    "The request has one of these forms; the first that fits applies, whatever the Content-Type. "
    "1. With `eventType` in the query, the body is a raw payload, or a data push if the type is "
    "DA-TA_PU-SH. 2. A JSON object with `header` is a message, and one with `events` a batch. They "
    "name their publishers themselves; a token in the request is allowed if the header of the "
    "message has a token too. 3. With a token, or in a public project, the body is a raw payload "
    "of type DEFAULT. Any other request is malformed. The answer 201 means that the effects of "
    "the event are on disk. After 429 and 503, except OutcomeUnknown, nothing was stored: repeat "
    "the request with the same Idempotency-Key, or with an event id of at least 16 characters."
)


def _query(name: str, what: str) -> Json:
    return {"name": name, "in": "query", "description": what, "schema": _TEXT}


def _either(*names: str) -> Json:
    return {"anyOf": [{"$ref": f"#/components/schemas/{name}"} for name in names]}


def paths() -> Json:
    """Return the path of the endpoint with its only operation."""
    failures = (400, 401, 403, 404, 413, 422, 429, 500, 503)
    operation = {
        "operationId": "HandleEvent",
        "summary": "Send an event, a batch of events, or a push with events of many devices",
        "description": _DESCRIPTION,
        "tags": ["event"],
        "security": [{"publisher": []}, {"tokenInQuery": []}, {}],
        "parameters": [
            {
                "name": "channel",
                "in": "path",
                "required": True,
                "description": "the name of the project, with or without the prefix of its owner",
                "schema": {"type": "string", "minLength": 1},
            },
            _query("eventType", "makes the body a raw payload"),
            _query("eventID", "the id of a raw event"),
            _query("timestamp", "the time of a raw event: any 64-bit integer"),
            {
                "name": "Idempotency-Key",
                "in": "header",
                "description": "a repeated request with the same key runs only the events that "
                "have not run",
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
                "description": "The event was handled. A handler that failed has the code -1 and "
                "a reason.",
                "headers": {
                    "X-Event-Id": {"schema": _TEXT},
                    "Idempotency-Replayed": {
                        "description": "true if all results are stored ones; absent otherwise",
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

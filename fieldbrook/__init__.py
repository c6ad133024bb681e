"""fieldbrook: an event node for devices."""

__version__ = "0.1.0"

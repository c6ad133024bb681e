"""The management interface over HTTP."""

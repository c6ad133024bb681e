"""The prefixes of the paths of the management interface."""

PREFIXES = ("/srv-applet-mgr/v0", "/api/w3bapp")

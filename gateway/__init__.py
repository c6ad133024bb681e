"""How events and administrators reach the node: HTTP and MQTT."""

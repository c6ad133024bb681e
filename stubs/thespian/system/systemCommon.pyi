# The link speed in packets above which sends are slowed down.
RATE_THROTTLE: int

from datetime import timedelta

MAX_SYSTEM_SHUTDOWN_DELAY: timedelta

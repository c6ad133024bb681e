"""A sensor: sends a reading each second, and keeps what it cannot send on its disk.

Usage: python3 sensor.py [READINGS], with the variables of README.md.
"""

from __future__ import annotations

import os
import random
import sys
import time

from fieldbrook.device import Accepted, Device, Event, QueueFullError, Refused


def show(event: Event, outcome: Accepted | Refused) -> None:
    if isinstance(outcome, Refused):
        print(f"{event.event_id} refused: {outcome}", flush=True)
    else:
        codes = [result.code for result in outcome.results]
        print(f"{event.event_id} committed, handlers returned {codes}", flush=True)


def main(readings: int) -> int:
    celsius = 21.0
    with Device(
        os.environ.get("FIELDBROOK_URL", "http://127.0.0.1:8888"),
        project=os.environ["FIELDBROOK_PROJECT"],
        publisher=os.environ["FIELDBROOK_PUBLISHER"],
        token=os.environ["FIELDBROOK_PUBLISHER_TOKEN"],
        queue=os.environ.get("SENSOR_QUEUE", "sensor-queue"),
        ca=os.environ.get("FIELDBROOK_CA"),
        on_accepted=show,
        on_refused=show,
    ) as device:
        if device.pending:
            print(f"{device.pending} readings of an earlier run wait", flush=True)
        for number in range(readings):
            if number:
                time.sleep(float(os.environ.get("SENSOR_PAUSE_S", "1")))
            celsius += random.uniform(-0.5, 0.5)  # noqa: S311 - a made-up reading
            try:
                device.send("TEMPERATURE", {"celsius": round(celsius, 2)})
            except QueueFullError as error:
                print(f"a reading is lost: {error}", flush=True)
        if not device.flush(float(os.environ.get("SENSOR_FLUSH_S", "10"))):
            print(f"{device.pending} readings wait for the node: {device.last_error}", flush=True)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 10))

#!/usr/bin/env python3
"""Exit with 0 when the node of this container says that all its parts are well."""

import os
import sys
import urllib.error
import urllib.request

PORT = os.environ.get("FIELDBROOK_HTTP_PORT", "8888")

try:
    with urllib.request.urlopen(f"http://127.0.0.1:{PORT}/liveness", timeout=4) as answer:
        print(answer.read().decode())
except urllib.error.HTTPError as error:
    sys.exit(f"{error}: {error.read().decode(errors='replace')}")
except OSError as error:
    sys.exit(str(error))

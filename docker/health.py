#!/usr/bin/env python3
"""Exit with 0 if the node of this container reports that it is alive."""

import os
import ssl
import sys
import urllib.error
import urllib.request

PORT = os.environ.get("FIELDBROOK_HTTP_PORT", "8888")
SCHEME = "https" if os.environ.get("FIELDBROOK_TLS_CERTIFICATE") else "http"
# The certificate is not issued for the loopback address.
UNCHECKED = ssl._create_unverified_context()  # noqa: S323
URL = f"{SCHEME}://127.0.0.1:{PORT}/liveness"

try:
    with urllib.request.urlopen(URL, timeout=4, context=UNCHECKED) as answer:  # noqa: S310
        print(answer.read().decode())
except urllib.error.HTTPError as error:
    sys.exit(f"{error}: {error.read().decode(errors='replace')}")
except OSError as error:
    sys.exit(str(error))

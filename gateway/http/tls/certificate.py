"""The certificate of the HTTP ports, which may be renewed at any time."""

from __future__ import annotations

import logging
import ssl
from urllib.parse import urlsplit

from fieldbrook.core.errors import NodeError, SettingsError
from fieldbrook.core.settings import Settings, listed
from fieldbrook.security import tls
from fieldbrook.security.dashboard_hosts import is_dashboard_host

log = logging.getLogger(__name__)


class Certificate:
    """The certificate of the settings, or none.

    Attributes:
        context: the TLS context of the ports; None without a certificate.
        names: the names and addresses that the certificate is for; None without one.
    """

    def __init__(self, settings: Settings) -> None:
        """Load the certificate.

        Raises:
            SettingsError: the certificate cannot be used.
        """
        self._settings = settings
        self._identity = identity = tls.identity_of(settings)
        self.context: ssl.SSLContext | None = None
        self.names: tuple[str, ...] | None = None
        if identity is not None:
            self.context = tls.server_context(identity)
            self.names = tls.names_in(identity.certificate)
            self._watch = tls.CertificateWatch(identity)

    def renew(self) -> None:
        """Use a renewed certificate from the next connection on."""
        if self.context is None or self._identity is None or not self._watch.has_changed():
            return
        try:
            names = tls.names_in(self._identity.certificate)
            tls.load(self.context, self._identity)
        except SettingsError as error:
            log.warning(
                "cannot load the renewed certificate, the previous one stays in use: %s", error
            )
        else:
            self.names = names
            log.info("the renewed certificate %s is now in use", self._identity.certificate)

    def is_own_host(self, host: str) -> bool:
        """Return whether a host name can be this node; without a certificate, every name can."""
        return self.names is None or tls.covers(self.names, host)

    def is_dashboard_host(self, header: str) -> bool:
        """Return whether a browser may use this `Host` for the dashboard."""
        names = listed(self._settings.dashboard_hosts) or self.names or ()
        public = urlsplit(self._settings.public_url or "").hostname
        return is_dashboard_host(header, [*names, public] if public else names)

    def dashboard_context(self) -> ssl.SSLContext | None:
        """Return the TLS context of the dashboard port: with this certificate or, without one, with
        the node's own certificate for this machine."""
        if self.context is not None:
            return self.context
        # Creating it needs the library cryptography; no event waits for this.
        from fieldbrook.security.local_certificate import local_identity

        try:
            return tls.server_context(local_identity(self._settings.data / "secrets"))
        except NodeError as error:
            # HTTP works without the certificate.
            log.warning("the dashboard is not served over https: %s", error)
            return None

"""TLS of a client port: certificate files that may change, and the context the native door hands to the event loop."""

from __future__ import annotations

import ssl

from razzo.door.server import TlsFiles

_Stamp = tuple[int, int, int]


class CertificateWatch:
    """Tells whether the files changed since they were last read, by inode, time and size."""

    def __init__(self, files: TlsFiles) -> None:
        self.files = files
        self._stamps: tuple[_Stamp, ...] = ()

    def changed(self) -> bool:
        """OSError when a file is absent, as it may be for a moment while it is replaced."""
        return self._stamp() != self._stamps

    def read(self) -> tuple[bytes, bytes, bytes | None]:
        """Key, certificate chain and the authority for client certificates, PEM. OSError when a file cannot be read."""
        stamps = self._stamp()
        client_ca = self.files.client_ca
        pem = (
            self.files.private_key.read_bytes(),
            self.files.certificate.read_bytes(),
            None if client_ca is None else client_ca.read_bytes(),
        )
        self._stamps = stamps
        return pem

    def context(self) -> ssl.SSLContext:
        """A server context from the files as they are now: TLS 1.2 or later, ALPN h2. OSError or ssl.SSLError."""
        stamps = self._stamp()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["h2"])
        context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
        context.load_cert_chain(self.files.certificate, self.files.private_key)
        if self.files.client_ca is not None:
            context.load_verify_locations(self.files.client_ca)
            context.verify_mode = ssl.CERT_REQUIRED
        self._stamps = stamps
        return context

    def _stamp(self) -> tuple[_Stamp, ...]:
        files = (self.files.private_key, self.files.certificate, self.files.client_ca)
        return tuple((s.st_ino, s.st_mtime_ns, s.st_size) for s in (path.stat() for path in files if path is not None))

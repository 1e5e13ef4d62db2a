"""A certificate authority for tests: signs certificates for localhost and for clients."""

from __future__ import annotations

import datetime
import ipaddress
import os
import ssl
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from razzo.door.server import TlsFiles

DAY = datetime.timedelta(days=1)


class Authority:
    """Makes PEM files below `folder`; `certificate` is the root that clients trust."""

    def __init__(self, folder: Path, name: str = "Razzo test authority") -> None:
        self.folder = folder
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self._key = ec.generate_private_key(ec.SECP256R1())
        builder = self._builder(self._name, self._key).add_extension(x509.BasicConstraints(True, None), critical=True)
        self._root = builder.sign(self._key, hashes.SHA256())
        self.certificate = folder / "authority.pem"
        self.certificate.write_bytes(self._root.public_bytes(serialization.Encoding.PEM))

    def issue(self, name: str) -> tuple[bytes, bytes]:
        """Key and certificate, PEM, for `name`, localhost and the loopback addresses."""
        key = ec.generate_private_key(ec.SECP256R1())
        addresses = [x509.IPAddress(ipaddress.ip_address(text)) for text in ("127.0.0.1", "::1")]
        certificate = (
            self._builder(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]), key)
            .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost"), *addresses]), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        return private, certificate.public_bytes(serialization.Encoding.PEM)

    def server_files(self, folder: Path, name: str = "door", *, mutual: bool = False) -> TlsFiles:
        """Writes, or replaces by renaming as a certificate manager does, the files of a server."""
        key, certificate = self.issue(name)
        for file, pem in (("tls.key", key), ("tls.crt", certificate)):
            (folder / f"{file}.new").write_bytes(pem)
            os.replace(folder / f"{file}.new", folder / file)
        return TlsFiles(folder / "tls.crt", folder / "tls.key", self.certificate if mutual else None)

    def client_context(self, *, protocols: tuple[str, ...] = ("h2",)) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.certificate))
        if protocols:
            context.set_alpn_protocols(list(protocols))
        return context

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - DAY)
            .not_valid_after(now + 30 * DAY)
        )

"""Servers with a certificate of their own, for what tests say of TLS."""

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from ipaddress import ip_address
from pathlib import Path
from threading import Thread

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

LOCALHOST = x509.IPAddress(ip_address("127.0.0.1"))


@contextmanager
def https_server(folder: Path, *names: x509.GeneralName, body: bytes) -> Iterator[tuple[str, str]]:
    """The URL of a server with a certificate for these names, which answers `body`; and the certificate's file."""
    file = _certificate(folder, *names)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    server = HTTPServer(("127.0.0.1", 0), type("Handler", (_Silent,), {"body": body}))
    server.handle_error = lambda *_: None  # type: ignore[method-assign]  # A client that hangs up is what is tested.
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"https://127.0.0.1:{server.server_port}", str(file)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Silent(BaseHTTPRequestHandler):
    body: bytes

    def do_POST(self) -> None:  # http.server's name.
        self.send_response(200)
        self.send_header("Content-Length", str(len(self.body)))
        self.end_headers()
        self.wfile.write(self.body)

    def log_message(self, *_: object) -> None:
        pass


def _certificate(folder: Path, *names: x509.GeneralName) -> Path:
    """A self-signed certificate with its key, in one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "stripe")])
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(datetime.now(UTC) - timedelta(days=1))
        .not_valid_after(datetime.now(UTC) + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.KeyUsage(
                digital_signature=True,
                key_cert_sign=True,
                **dict.fromkeys(
                    "content_commitment key_encipherment data_encipherment key_agreement crl_sign encipher_only "
                    "decipher_only".split(),
                    False,
                ),
            ),
            critical=True,
        )
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    file = folder / "certificate.pem"
    file.write_bytes(private + made.public_bytes(serialization.Encoding.PEM))
    return file

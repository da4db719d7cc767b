"""A PostgreSQL server with TLS of its own, and the certificate that it is known by.

The embedded server's binaries know no TLS, so it is the system's. Own folder, own port, a certificate for this run.
"""

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.services.absent import ci_or_skip
from tests.services.embedded import temporary_home
from txsaga.embedded.account import server_account
from txsaga.embedded.server import EmbeddedServer

INSTALL_LINE = "apt-get install -y --no-install-recommends postgresql openssl"
SYSTEM = Path("/usr/lib/postgresql")


@dataclass(frozen=True, slots=True, kw_only=True)
class Secured:
    """A server that speaks TLS."""

    server: EmbeddedServer
    certificate: Path
    stranger: Path
    """A certificate that is not the server's."""

    def url(self, database: str, root: Path | None = None, mode: str = "verify-full") -> str:
        """Return the URL of a database that is only reached by TLS."""
        return f"{self.server.url(database)}?sslmode={mode}&sslrootcert={root or self.certificate}"


@contextmanager
def secured_server() -> Iterator[Secured]:
    """Give a running server with TLS; it is gone with its block."""
    binaries = sorted(SYSTEM.glob("*/bin"), reverse=True)
    if not binaries or shutil.which("openssl") is None:
        ci_or_skip("PostgreSQL with TLS", INSTALL_LINE)
    with temporary_home() as folder:
        certificate, key = _certificate(folder, "server")
        stranger, _ = _certificate(folder, "stranger")
        home = folder / "home"
        account = server_account(wanted=None, data=home)
        account.give(key)
        settings = {"ssl": "on", "ssl_cert_file": str(certificate), "ssl_key_file": str(key)}
        server = EmbeddedServer(home=home, binaries=binaries[0], settings=settings).ensure()
        yield Secured(server=server, certificate=certificate, stranger=stranger)


def _certificate(folder: Path, name: str) -> tuple[Path, Path]:
    certificate, key = folder / f"{name}.crt", folder / f"{name}.key"
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost"
    alternative = ["-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost"]
    subprocess.run(
        [*command.split(), *alternative, "-keyout", key, "-out", certificate], check=True, capture_output=True
    )
    key.chmod(0o600)
    certificate.chmod(0o644)
    return certificate, key

"""Key and trust stores of a cluster and its clients, as PEM files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tests.support.certificates import Authority


class Stores:
    """The files of an authority, of the nodes, of a client that they know, and of a client of another authority."""

    def __init__(self, directory: Path, hosts: Sequence[str] = ("localhost", "127.0.0.1")) -> None:
        """`hosts` are the names in the certificate of the nodes."""
        self._authority, self._other = Authority("Tests"), Authority("Others")
        self._directory, self._hosts = directory, hosts
        self.ca, self.node = directory / "ca.pem", directory / "node.pem"
        self.trust_no_other()
        self.renew()
        self.client = self._pem(directory / "client.pem", self._authority, "client")
        self.unknown = self._pem(directory / "unknown.pem", self._other, "client")

    def known(self, name: str) -> Path:
        """The key and certificate of a client with this common name, of the authority of the nodes."""
        return self._pem(self._directory / f"client-{name}.pem", self._authority, name)

    @staticmethod
    def _pem(path: Path, authority: Authority, name: str) -> Path:
        path.write_text(authority.issue(name).pem())
        return path

    def renew(self) -> int:
        """Another certificate of the nodes; its serial number."""
        issued = self._authority.issue("node", *self._hosts)
        _replace(self.node, issued.pem())
        return issued.certificate.serial_number

    def trust_other(self) -> None:
        """The nodes trust the other authority as well."""
        _replace(self.ca, self._authority.certificate_pem + self._other.certificate_pem)

    def trust_no_other(self) -> None:
        _replace(self.ca, self._authority.certificate_pem)

    def of_node(self) -> dict[str, str]:
        """The settings of a broker with these stores."""
        return {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.node),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.ca),
        }


def _replace(path: Path, text: str) -> None:
    """At once: no node reads half of it."""
    new = path.with_suffix(".new")
    new.write_text(text)
    new.rename(path)

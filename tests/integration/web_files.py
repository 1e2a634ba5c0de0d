"""Certificates and files of `--web.config.file`, made for one test module by openssl."""

import shutil
import ssl
import subprocess
from pathlib import Path

from tests.tools import unavailable

PASSWORD = b"correct horse"
HASH = "$2b$04$Na1CJzGJlAg/sXfcFUbuO.Pbio9HL6DQRTZsyktkrN3ViOcMBCQf."


class Authority:
    """A certificate authority and what it has signed, each as NAME.pem and NAME.key in `directory`."""

    def __init__(self, directory: Path) -> None:
        if shutil.which("openssl") is None:
            unavailable("openssl", "apt-get install openssl")
        self.directory = directory
        self._make("ca", "basicConstraints=critical,CA:TRUE", "keyUsage=critical,keyCertSign,cRLSign")
        self.signed("server", "DNS:localhost")

    @property
    def ca(self) -> Path:
        return self.directory / "ca.pem"

    def signed(self, name: str, sans: str, *, key: tuple[str, ...] = ()) -> Path:
        """Return the path of a certificate for these alternative names, as openssl writes them."""
        extensions = (f"subjectAltName={sans}", "basicConstraints=critical,CA:FALSE")
        self._make(name, *extensions, signer=("-CA", "ca.pem", "-CAkey", "ca.key"), key=key)
        return self.directory / f"{name}.pem"

    def client(self, name: str | None = None) -> ssl.SSLContext:
        """Return a client's context that trusts the authority, with the certificate of that name."""
        context = ssl.create_default_context(cafile=self.ca)
        if name is not None:
            context.load_cert_chain(self.directory / f"{name}.pem", self.directory / f"{name}.key")
        return context

    def _make(self, name: str, *extensions: str, signer: tuple[str, ...] = (), key: tuple[str, ...] = ()) -> None:
        made = key or ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-noenc")
        command = ["openssl", "req", "-x509", *made, *signer, "-days", "2", "-subj", f"/CN={name}"]
        command += ["-keyout", f"{name}.key", "-out", f"{name}.pem"]
        command += [part for extension in extensions for part in ("-addext", extension)]
        subprocess.run(command, cwd=self.directory, check=True, capture_output=True, timeout=30)


def write(path: Path, text: str) -> str:
    """Write the file as an administrator's tools do, by renaming, and return its path."""
    beside = path.with_name(f".{path.name}")
    beside.write_text(text)
    beside.replace(path)
    return str(path)

"""Which proxy stands between this machine and a server, by the variables that every tool reads.

`HTTPS_PROXY`, `HTTP_PROXY` and `ALL_PROXY` (or in lower case) name it, `NO_PROXY` what goes around it. A loopback address
never goes through a proxy. A private one (a private or link-local IP address, a name without a dot, `.local`, `.internal`)
does only where `NO_PROXY` is set and does not name it: who sets it has listed what goes around.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from urllib.parse import urlsplit


@dataclass(frozen=True)
class Proxy:
    """A proxy and the variable that names it. `shown` is its host and port: the URL may hold a password."""

    url: str = field(repr=False)
    variable: str

    @property
    def shown(self) -> str:
        parts = urlsplit(self.url)
        return f"{parts.hostname}:{parts.port or (443 if parts.scheme == 'https' else 80)}"

    @property
    def spoken(self) -> bool:
        """Whether it is an HTTP proxy, the only kind that can be used."""
        return urlsplit(self.url).scheme in ("http", "https")

    def __str__(self) -> str:
        return f"{self.shown} (environment variable {self.variable})"


def proxy_for(url: str, environ: Mapping[str, str] | None = None) -> Proxy | None:
    """The proxy that a request to `url` goes through; None where it goes straight."""
    environ = os.environ if environ is None else environ
    parts = urlsplit(url)
    host = (parts.hostname or "").rstrip(".").lower()
    around = _value(environ, "no_proxy")
    if is_loopback(host) or (is_private(host) and around is None) or _goes_around(host, parts.port, around or ""):
        return None
    for name in (f"{parts.scheme}_proxy", "all_proxy"):
        for variable in (name, name.upper()):
            if variable == "HTTP_PROXY" and "REQUEST_METHOD" in environ:
                continue  # under CGI a client can set it, by a header `Proxy`
            if value := environ.get(variable, "").strip():
                return Proxy(value if "://" in value else f"http://{value}", variable)
    return None


def is_loopback(host: str) -> bool:
    """Whether a host is this machine itself."""
    address = _address(host)
    return host == "localhost" or host.endswith(".localhost") or (address is not None and address.is_loopback)


def is_private(host: str) -> bool:
    """Whether a host stands in a network of one's own, as far as its name or address tells."""
    address = _address(host)
    if address is not None:
        return address.is_private or address.is_link_local
    return "." not in host or host.endswith((".local", ".internal", ".localdomain", ".lan"))


def _goes_around(host: str, port: int | None, around: str) -> bool:
    """Whether `NO_PROXY` names a host: `*`, names (with all below them), addresses, networks (`10.0.0.0/8`)."""
    address = _address(host)
    for entry in (part.strip().lower() for part in around.split(",")):
        name = entry.removeprefix("*").removeprefix(".")
        if entry == "*":
            return True
        if not name:
            continue
        if "/" in name and address is not None and _within(address, name):
            return True
        if name in (host, f"{host}:{port}") or host.endswith(f".{name}"):
            return True
    return False


def _within(address: IPv4Address | IPv6Address, network: str) -> bool:
    try:
        return address in ip_network(network, strict=False)
    except ValueError:
        return False


def _address(host: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(host.strip("[]"))
    except ValueError:
        return None


def _value(environ: Mapping[str, str], name: str) -> str | None:
    return environ.get(name, environ.get(name.upper()))

"""Which proxy a request goes through, by the environment variables that every tool reads.

`HTTPS_PROXY`, `HTTP_PROXY` and `ALL_PROXY` (or in lower case) name it; `NO_PROXY` lists the exceptions. A loopback address
never goes through a proxy. A private host (a private or link-local IP address, a name without a dot, `.local`, `.internal`)
does so only where `NO_PROXY` is set and does not list it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from urllib.parse import urlsplit


@dataclass(frozen=True)
class Proxy:
    """A proxy and the variable that names it. Print it, not its `url`, which may contain a password."""

    url: str = field(repr=False)
    variable: str

    @property
    def address(self) -> str:
        """Host and port."""
        parts = urlsplit(self.url)
        return f"{parts.hostname}:{parts.port or (443 if parts.scheme == 'https' else 80)}"

    @property
    def is_http(self) -> bool:
        """Whether it is an HTTP proxy, the only kind that can be used."""
        return urlsplit(self.url).scheme in ("http", "https")

    def __str__(self) -> str:
        return f"{self.address} (environment variable {self.variable})"


def proxy_for(url: str, environ: Mapping[str, str] | None = None) -> Proxy | None:
    """The proxy for a request to `url`; None for a direct connection."""
    environ = os.environ if environ is None else environ
    parts = urlsplit(url)
    host = (parts.hostname or "").rstrip(".").lower()
    no_proxy = environ.get("no_proxy", environ.get("NO_PROXY"))
    if is_loopback(host) or (is_private(host) and no_proxy is None):
        return None
    if _is_exempt(host, parts.port, no_proxy or ""):
        return None
    return _configured_proxy(parts.scheme, environ)


def _configured_proxy(scheme: str, environ: Mapping[str, str]) -> Proxy | None:
    for name in (f"{scheme}_proxy", "all_proxy"):
        for variable in (name, name.upper()):
            if variable == "HTTP_PROXY" and "REQUEST_METHOD" in environ:
                continue  # under CGI a client can set it with a `Proxy` header
            if value := environ.get(variable, "").strip():
                return Proxy(value if "://" in value else f"http://{value}", variable)
    return None


def is_loopback(host: str) -> bool:
    """Whether a host is this machine itself."""
    address = _address(host)
    return host == "localhost" or host.endswith(".localhost") or (address is not None and address.is_loopback)


def is_private(host: str) -> bool:
    """Whether a host is in a private network, as far as its name or address tells."""
    address = _address(host)
    if address is not None:
        return address.is_private or address.is_link_local
    return "." not in host or host.endswith((".local", ".internal", ".localdomain", ".lan"))


def _is_exempt(host: str, port: int | None, no_proxy: str) -> bool:
    """Whether `NO_PROXY` lists a host: `*`, names (with their subdomains), addresses, networks (`10.0.0.0/8`)."""
    address = _address(host)
    for entry in (part.strip().lower() for part in no_proxy.split(",")):
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

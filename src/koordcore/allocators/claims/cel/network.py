"""URLs, IP addresses and networks.

Reference: Kubernetes' ``cel/library`` of URLs, IP and CIDR; Go's ``net/url`` and ``net/netip`` for texts.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Final
from urllib.parse import quote, unquote

from koordcore.allocators.claims.cel.declarations import Library
from koordcore.allocators.claims.cel.errors import RunFailure
from koordcore.allocators.claims.cel.types import BOOL, CIDR, INT, IP, STRING, URL, list_of, map_of
from koordcore.allocators.claims.cel.values import Budget, CelMap, CidrValue, IpValue, UrlValue, Value

_URL: Final = re.compile(
    r"(?:(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*):)?(?://(?P<authority>[^/?#]*))?(?P<path>[^?#]*)"
    r"(?:\?(?P<query>[^#]*))?(?:#(?P<fragment>.*))?",
    re.ASCII | re.DOTALL,
)
_HOST: Final = re.compile(r"(?:\[[0-9A-Fa-f:.%A-Za-z_~-]*\]|[^\[\]<>\"\s^`{}|\\:@%]*)(?::[0-9]*)?")
_KEPT_IN_PATHS: Final = "$&+,/:;=@!'()*~"
_PREFIX: Final = re.compile(r"0|[1-9][0-9]{0,2}", re.ASCII)


def declare_network(library: Library) -> None:
    """Add URLs, addresses and networks."""
    _declare_urls(library)
    library.function("ip", (STRING,), IP, _charged(_ip))
    library.function("isIP", (STRING,), BOOL, _charged(_reads(_ip)))
    library.function("ip.isCanonical", (STRING,), BOOL, _charged(lambda text: str(_ip(text).address) == text))
    library.method("family", (IP,), INT, lambda _, ip: ip.address.version)
    library.method("isUnspecified", (IP,), BOOL, lambda _, ip: ip.address.is_unspecified)
    library.method("isLoopback", (IP,), BOOL, lambda _, ip: ip.address.is_loopback)
    library.method("isLinkLocalMulticast", (IP,), BOOL, lambda _, ip: _link_local_multicast(ip))
    library.method("isLinkLocalUnicast", (IP,), BOOL, lambda _, ip: ip.address.is_link_local)
    library.method("isGlobalUnicast", (IP,), BOOL, lambda _, ip: _global_unicast(ip))
    library.function("cidr", (STRING,), CIDR, _charged(_cidr))
    library.function("isCIDR", (STRING,), BOOL, _charged(_reads(_cidr)))
    library.method("containsIP", (CIDR, IP), BOOL, lambda _, net, ip: ip.address in net.network)
    library.method("containsIP", (CIDR, STRING), BOOL, lambda _, net, text: _ip(text).address in net.network)
    library.method("containsCIDR", (CIDR, CIDR), BOOL, lambda _, one, other: _within(one, other))
    library.method("containsCIDR", (CIDR, STRING), BOOL, lambda _, one, text: _within(one, _cidr(text)))
    library.method("ip", (CIDR,), IP, lambda _, net: IpValue(net.address))
    library.method(
        "masked", (CIDR,), CIDR, lambda _, net: CidrValue(net.network.network_address, net.network)
    )
    library.method("prefixLength", (CIDR,), INT, lambda _, net: net.network.prefixlen)


def _charged(run: Callable[[str], Value]) -> Callable[[Budget, str], Value]:
    def charged(budget: Budget, text: str) -> Value:
        budget.charge_text(len(text))
        return run(text)

    return charged


def _reads(read: Callable[[str], Value]) -> Callable[[str], bool]:
    def reads(text: str) -> bool:
        try:
            read(text)
        except RunFailure:
            return False
        return True

    return reads


# --- addresses ----------------------------------------------------------------------------------------


def _ip(text: str) -> IpValue:
    try:
        address = ip_address(text)
    except ValueError:
        raise RunFailure(f"IP Address {text!r} parse error during conversion from string") from None
    if isinstance(address, IPv6Address) and (address.scope_id is not None or address.ipv4_mapped is not None):
        raise RunFailure(f"IP address {text!r} with zone value or IPv4-mapped IPv6 address is not allowed")
    return IpValue(address)


def _cidr(text: str) -> CidrValue:
    address, slash, bits = text.partition("/")
    parsed = _ip(address)
    if not slash or not _PREFIX.fullmatch(bits) or int(bits) > parsed.address.max_prefixlen:
        raise RunFailure(f"network address parse error during conversion from string: {text!r}")
    return CidrValue(parsed.address, ip_network((parsed.address, int(bits)), strict=False))


def _within(outer: CidrValue, inner: CidrValue) -> bool:
    return inner.address in outer.network and inner.network.prefixlen >= outer.network.prefixlen


def _link_local_multicast(ip: IpValue) -> bool:
    packed = ip.address.packed
    if isinstance(ip.address, IPv4Address):
        return packed[:3] == b"\xe0\x00\x00"
    return packed[0] == 0xFF and packed[1] & 0x0F == 0x02


def _global_unicast(ip: IpValue) -> bool:
    address = ip.address
    return not (
        address.is_unspecified
        or address.is_loopback
        or address.is_multicast
        or address.is_link_local
        or address == IPv4Address("255.255.255.255")
    )


# --- URLs ---------------------------------------------------------------------------------------------


def _declare_urls(library: Library) -> None:
    library.function("url", (STRING,), URL, _charged(_url))
    library.function("isURL", (STRING,), BOOL, _charged(_reads(_url)))
    library.method("getScheme", (URL,), STRING, lambda _, url: url.scheme)
    library.method("getHost", (URL,), STRING, lambda _, url: url.host)
    library.method("getHostname", (URL,), STRING, lambda _, url: _split_port(url.host)[0])
    library.method("getPort", (URL,), STRING, lambda _, url: _split_port(url.host)[1])
    library.method("getEscapedPath", (URL,), STRING, lambda _, url: _escaped(url.path))
    library.method("getQuery", (URL,), map_of(STRING, list_of(STRING)), _query)


def _url(text: str) -> UrlValue:
    match = _URL.fullmatch(text)
    if match is None or any(ord(char) < 0x20 or ord(char) == 0x7F for char in text):
        raise RunFailure("URL parse error during conversion from string")
    scheme, authority, path = match["scheme"], match["authority"], match["path"]
    # A request URI: absolute, or a path from the root.
    if (scheme is None and not path.startswith("/")) or re.search(r"%(?![0-9A-Fa-f]{2})", path):
        raise RunFailure("URL parse error during conversion from string")
    host = (authority or "").rpartition("@")[2]
    if not _HOST.fullmatch(unquote(host)):
        raise RunFailure("URL parse error during conversion from string")
    if scheme is not None and authority is None and not path.startswith("/"):
        path = ""  # such as mailto:somebody: what follows the scheme is no path
    return UrlValue(text, (scheme or "").lower(), unquote(host), path, match["query"] or "")


def _split_port(host: str) -> tuple[str, str]:
    if host.startswith("["):
        name, _, rest = host[1:].partition("]")
        return name, rest.removeprefix(":")
    name, colon, port = host.rpartition(":")
    return (name, port) if colon else (host, "")


def _escaped(path: str) -> str:
    return (
        quote(path, safe=_KEPT_IN_PATHS + "%[]") if path.isascii() else quote(path, safe=_KEPT_IN_PATHS + "%")
    )


def _query(budget: Budget, url: UrlValue) -> CelMap:
    budget.charge_text(len(url.query))
    found: dict[str, list[str]] = {}
    for part in url.query.split("&"):
        if not part or ";" in part:
            continue
        key, _, value = part.partition("=")
        found.setdefault(unquote(key.replace("+", " ")), []).append(unquote(value.replace("+", " ")))
    return CelMap.of_names({key: tuple(values) for key, values in found.items()})

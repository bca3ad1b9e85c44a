"""Admission of requests: only those of the server's own page, with the token of a reader.

The token is sent in a header. A cookie would be sent to every server of this machine, because cookies ignore ports, and
a query would appear in histories and logs. A header that a page must set itself also prevents requests that other sites
forge. Host is checked because a name that an attacker owns may resolve to 127.0.0.1.
"""

from __future__ import annotations

from typing import Final

from starlette.datastructures import Headers

from lostflops.show.serve.entrance import Entrance

HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Cache-Control": "no-store",
    # Not `same-origin`: the Perfetto UI that a click opens could not be given the trace.
    "Cross-Origin-Opener-Policy": "same-origin-allow-popups",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


def refusal(headers: Headers, entrance: Entrance, *, public: bool, is_shell: bool) -> tuple[int, str] | None:
    """Return the status and the reason if a request is refused; None lets it in. `public` routes say nothing about any
    run."""
    if headers.getlist("host") not in [[host] for host in entrance.hosts]:
        return 403, f"this page is served only at {entrance.scheme}://{entrance.hosts[0]}"
    host = headers["host"]
    if any(origin != f"{entrance.scheme}://{host}" for origin in headers.getlist("origin")):
        return 403, "requests from other sites are refused"
    if not _own(headers, is_shell):
        return 403, "requests from other sites are refused"
    if not public and find_reader(headers, entrance) is None:
        return 401, "the token is missing or wrong: open the address that ends in #token= and your token"
    return None


def find_reader(headers: Headers, entrance: Entrance) -> str | None:
    """Return the name of the reader whose token a request has; None without one, or with several."""
    given = headers.getlist("authorization")
    scheme, _, token = given[0].partition(" ") if len(given) == 1 else ("", "", "")
    return entrance.readers.find_reader(token) if scheme == "Bearer" and token else None


def _own(headers: Headers, is_shell: bool) -> bool:
    """Return whether browsers say that a request comes from the page itself. Following a link to the page is allowed:
    it contains no data."""
    site = headers.get("sec-fetch-site", "none")
    followed = headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest") == "document"
    return site in ("none", "same-origin") or (is_shell and followed)

"""Every route with every method, asked in every way that must be refused: derived from the table of routes."""

import pytest
from starlette.datastructures import Headers

from lostflops.show.serve.app import MOST_BODY
from lostflops.show.serve.entrance import OneReader, local_entrance
from lostflops.show.serve.guard import HEADERS, refusal
from lostflops.show.serve.routes import ROUTES
from lostflops.testing import SyntheticCluster, store

from .conftest import GOOD, HOST, PORT, TOKEN, Server

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT", "LEVITATE")
FORGED = {
    "another host": {"Host": "evil.example"},
    "another host on the port": {"Host": f"evil.example:{PORT}"},
    "another port": {"Host": f"127.0.0.1:{PORT + 1}"},
    "no port": {"Host": "127.0.0.1"},
    "a host that begins alike": {"Host": f"{HOST}.evil.example"},
    "a foreign origin": {"Origin": "https://evil.example"},
    "an origin without a name": {"Origin": "null"},
    "an origin of another port": {"Origin": f"http://127.0.0.1:{PORT + 1}"},
    "an origin by another scheme": {"Origin": f"https://{HOST}"},
    "a request of another site": {"Sec-Fetch-Site": "cross-site"},
    "a request of another port": {"Sec-Fetch-Site": "same-site"},
    "a frame of another site": {
        "Sec-Fetch-Site": "cross-site",
        "Sec-Fetch-Mode": "navigate",
        "Sec-Fetch-Dest": "iframe",
    },
}
TOKENS: dict[str, dict[str, str | bytes]] = {
    "none": {},
    "wrong": {"Authorization": "Bearer wrong-token"},
    "a part": {"Authorization": f"Bearer {TOKEN[:-1]}"},
    "empty": {"Authorization": "Bearer "},
    "another scheme": {"Authorization": f"Basic {TOKEN}"},
    "not ASCII": {"Authorization": b"Bearer \xe9\xff"},
    "a cookie": {"Cookie": f"token={TOKEN}"},
}
PATHS = [*(route.path for route in ROUTES), "/api", "/api/", "/api/levitate", "//", "/app.js/", "/../etc/passwd"]


def address(path: str) -> str:
    """With the parameters that the route asks for."""
    names = next((route.parameters for route in ROUTES if route.path == path), ())
    return f"http://{HOST}{path}" + ("?" if names else "") + "&".join(f"{name}=0" for name in names)


def refused(response) -> bool:
    told = response.request.method == "HEAD" or set(response.json()) == {"error"}
    return response.status_code in (401, 403) and told


@pytest.mark.parametrize("forged", FORGED.values(), ids=list(FORGED))
@pytest.mark.few(4)
def test_other_sites_are_refused_though_they_have_the_token(server: Server, forged: dict[str, str]) -> None:
    for path in PATHS:
        for method in METHODS:
            response = server.ask(method, address(path), {**GOOD, **forged})
            assert refused(response), f"{method} {path}: {response.status_code}"


@pytest.mark.parametrize("given", TOKENS.values(), ids=list(TOKENS))
def test_nothing_about_the_run_is_said_without_the_token(server: Server, given: dict[str, str | bytes]) -> None:
    public = {route.path for route in ROUTES if route.public}
    for path in PATHS:
        for method in METHODS:
            response = server.ask(method, address(path), {"Host": HOST, **given})
            if path in public:
                assert response.status_code == (200 if method == "GET" else 405)
            else:
                assert response.status_code == 401, f"{method} {path}"


def test_a_token_given_twice_is_refused(server: Server) -> None:
    twice = [("Host", HOST), ("Authorization", f"Bearer {TOKEN}"), ("Authorization", f"Bearer {TOKEN}")]
    assert server.ask("GET", "/api/questions", twice).status_code == 401


def test_public_routes_are_few_and_the_same_for_every_run(server: Server, tmp_path) -> None:
    from lostflops.show.serve.live import LivePage

    other = LivePage(store(SyntheticCluster(ranks=1, steps=1).generate(), tmp_path / "other"))
    public = [route.path for route in ROUTES if route.public]
    assert public == ["/", "/app.js", "/app.css"]
    for path in public:
        assert server.ask("GET", path).content == Server(other).ask("GET", path).content
    assert other.close()


def test_a_route_takes_one_method(server: Server) -> None:
    for route in ROUTES:
        for method in METHODS:
            response = server.ask(method, address(route.path))
            assert (response.status_code == 405) == (method != route.method), f"{method} {route.path}"


def test_paths_have_no_parameters_and_no_aliases(server: Server) -> None:
    known = {route.path for route in ROUTES}
    assert len(known) == len(ROUTES)
    assert not any(set(path) & set("{}<>:*") for path in known)
    for path in set(PATHS) - known:
        assert server.ask("GET", f"http://{HOST}{path}").status_code == 404


@pytest.mark.parametrize("origin", [None, f"http://{HOST}"])
@pytest.mark.parametrize("site", [None, "same-origin", "none"])
def test_the_page_itself_is_answered(server: Server, origin: str | None, site: str | None) -> None:
    given = {"Origin": origin, "Sec-Fetch-Site": site}
    headers = {**GOOD, **{name: value for name, value in given.items() if value}}
    assert server.ask("GET", "/api/questions", headers).status_code == 200


def test_the_page_is_reached_by_either_name_of_this_machine_and_by_a_link(server: Server) -> None:
    link = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    assert server.ask("GET", "/", {"Host": f"localhost:{PORT}", **link}).status_code == 200
    assert refused(server.ask("GET", "/api/questions", {**GOOD, **link}))
    mixed = {**GOOD, "Host": f"localhost:{PORT}", "Origin": f"http://{HOST}"}
    assert refused(server.ask("GET", "/api/questions", mixed))


@pytest.mark.parametrize(("host", "port", "let_in"), [("127.0.0.1", 80, True), ("localhost", 80, True),
                                                      ("localhost:80", 80, True), ("localhost", 81, False),
                                                      ("evil.example", 80, False)])  # fmt: skip
def test_browsers_leave_out_the_port_of_the_web(host: str, port: int, let_in: bool) -> None:
    headers = Headers({"host": host, "origin": f"http://{host}"})
    entrance = local_entrance(port, OneReader(TOKEN))
    assert (refusal(headers, entrance, public=True, is_shell=False) is None) == let_in


@pytest.mark.parametrize("headers", [GOOD, {"Host": HOST}, {"Host": "evil.example"}])
def test_every_answer_carries_the_policy(server: Server, headers: dict[str, str]) -> None:
    for path in PATHS:
        answer = server.ask("GET", address(path), headers)
        assert {name: answer.headers[name] for name in HEADERS} == HEADERS
        assert not [name for name in answer.headers if name.startswith("access-control")]
        assert "set-cookie" not in answer.headers


def test_the_policy_allows_no_inline_script_and_no_other_server() -> None:
    policy = dict(rule.split(" ", 1) for rule in HEADERS["Content-Security-Policy"].split("; "))
    assert policy["default-src"] == "'none'"
    assert {policy[name] for name in ("script-src", "style-src", "connect-src")} == {"'self'"}
    assert policy["frame-ancestors"] == "'none'"


@pytest.mark.parametrize(
    ("given", "status"),
    [
        ({"content": b"x" * (MOST_BODY + 1)}, 413),
        ({"content": b'{"query": "select 1"}'}, 415),
        ({"content": b'{"query": "select 1"}', "type": "text/plain"}, 415),
        ({"content": b"{", "type": "application/json"}, 400),
        ({"content": b"[" * 50_000, "type": "application/json"}, 400),
        ({"content": b"[]", "type": "application/json"}, 400),
        ({"content": b"{}", "type": "application/json"}, 422),
        ({"content": b'{"query": 1}', "type": "application/json"}, 422),
    ],
)
def test_bodies_are_small_json_objects(server: Server, given: dict[str, object], status: int) -> None:
    headers = {**GOOD, **({"Content-Type": str(given["type"])} if "type" in given else {})}
    assert server.ask("POST", "/api/sql", headers, content=given["content"]).status_code == status


def test_a_get_has_no_body(server: Server) -> None:
    assert server.ask("GET", "/api/questions", content=b"{}").status_code == 413


@pytest.mark.parametrize("query", ["", "?name=report&name=steps", "?name=report&more=1", "?Name=report"])
def test_parameters_are_exactly_those_of_the_route(server: Server, query: str) -> None:
    assert server.ask("GET", f"/api/result{query}").status_code == 400

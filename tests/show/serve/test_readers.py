"""Readers with tokens of their own, a page behind a proxy, and the audit log."""

from __future__ import annotations

import json
import os
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from lostflops.core.errors import UsageError
from lostflops.show.serve.audit import AuditLog
from lostflops.show.serve.entrance import OneReader, TokenFile, local_entrance, proxied_entrance
from lostflops.show.serve.live import LivePage
from lostflops.show.serve.sites import RunSite

from .conftest import HOST, PORT, TOKEN, SiteServer

ANNA, BEN = "a" * 32, "ben-" + "b" * 40


def write_tokens(file: Path, text: str, mode: int = 0o600) -> Path:
    file.write_text(text)
    file.chmod(mode)
    return file


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    return write_tokens(
        tmp_path / "tokens", f"# readers\nanna {ANNA}\n\nben@x sha256:{sha256(BEN.encode()).hexdigest()}\n"
    )


def test_each_reader_has_a_name(tokens: Path) -> None:
    readers = TokenFile(tokens)
    assert [readers.find_reader(token) for token in (ANNA, BEN)] == ["anna", "ben@x"]
    for wrong in ("", ANNA[:-1], ANNA + "a", BEN.upper(), sha256(BEN.encode()).hexdigest(), "\udcff", "anna"):
        assert readers.find_reader(wrong) is None


def test_a_file_that_changes_is_read_again(tokens: Path) -> None:
    readers = TokenFile(tokens)
    write_tokens(tokens, f"carl {'c' * 32}\n")
    assert [readers.find_reader(token) for token in (ANNA, "c" * 32)] == [None, "carl"]
    replaced = write_tokens(tokens.with_name("new"), f"anna {ANNA}\n")
    replaced.replace(tokens)
    assert readers.find_reader(ANNA) == "anna"


@pytest.mark.parametrize("damage", ["gone", "open to others", "not a list", "not text", "empty"])
def test_without_a_file_to_trust_there_is_no_reader(
    tokens: Path, damage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    readers = TokenFile(tokens)
    whole = tokens.read_bytes()
    if damage == "gone":
        tokens.unlink()
    elif damage == "open to others":
        tokens.chmod(0o640)
    else:
        tokens.write_bytes({"not a list": b"anna", "not text": b"\xff", "empty": b""}[damage])
    assert [readers.find_reader(ANNA) for _ in range(3)] == [None] * 3
    said = capsys.readouterr().err
    assert said.count("no reader is let in") == 1
    assert ANNA not in said
    tokens.unlink(missing_ok=True)
    write_tokens(tokens, whole.decode())
    assert readers.find_reader(ANNA) == "anna"


@pytest.mark.parametrize(
    ("text", "mode", "words"),
    [
        ("", 0o600, "names no reader"),
        ("anna\n", 0o600, "line 1 of .* is not a reader"),
        ("an/na " + ANNA, 0o600, "line 1 of .* is not a reader"),
        ("anna short", 0o600, "at least 32 letters"),
        ("anna " + "ä" * 40, 0o600, "at least 32 letters"),
        (f"anna {ANNA}\nanna {BEN}", 0o600, "names anna again"),
        (f"anna {ANNA}", 0o644, "chmod 600"),
    ],
)
def test_a_file_that_cannot_be_used(tmp_path: Path, text: str, mode: int, words: str) -> None:
    with pytest.raises(UsageError, match=words) as error:
        TokenFile(write_tokens(tmp_path / "tokens", text, mode))
    assert ANNA not in str(error.value)


def test_no_file_of_tokens(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        TokenFile(tmp_path / "tokens")


@pytest.mark.parametrize(
    "address",
    ["", "a.example", "ftp://a.example/", "https://", "https://u:p@a.example/", "https://a.example/?x=1",
     "https://a.example/#x", "https://a.example/a b/", "https://a.example/../", "https://a.example:port/"],
)  # fmt: skip
def test_an_address_that_no_page_has(address: str) -> None:
    with pytest.raises(UsageError, match="is not the address of a page"):
        proxied_entrance(address, OneReader(TOKEN))


@pytest.mark.parametrize(
    ("address", "host"),
    [
        ("https://a.example:443/team", "a.example"),
        ("http://a.example:80/", "a.example"),
        ("https://a.example:80/", "a.example:80"),
        ("https://A.example:8443/", "a.example:8443"),
        ("https://[::1]:8443/", "[::1]:8443"),
        ("https://[::1]/", "[::1]"),
    ],
)
def test_hosts_are_as_browsers_write_them(address: str, host: str) -> None:
    assert proxied_entrance(address, OneReader(TOKEN)).hosts == (host,)


@pytest.fixture
def proxied(run_folder: Path, tokens: Path, tmp_path: Path) -> Any:
    live = LivePage(run_folder)
    entrance = proxied_entrance("https://a.example/team/", TokenFile(tokens))
    yield SiteServer(RunSite(live), entrance, AuditLog(tmp_path / "audit"))
    assert live.close()


def entries(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text("ascii").splitlines()]


def test_behind_a_proxy_only_its_address_is_answered(proxied: SiteServer) -> None:
    good = {"Host": "a.example", "Authorization": f"Bearer {ANNA}"}
    assert proxied.ask("GET", "/team/api/questions", good).status_code == 200
    assert proxied.ask("GET", "/team/", {"Host": "a.example"}).text.count('="app.') == 2
    assert proxied.ask("GET", "/team/api/questions", {**good, "Origin": "https://a.example"}).status_code == 200
    assert proxied.ask("GET", "/api/questions", good).status_code == 404
    for forged in (
        {"Host": HOST},
        {"Host": "a.example:443"},
        {"Host": "b.example"},
        {"Origin": "http://a.example"},
        {"Origin": "https://b.example"},
        {"Sec-Fetch-Site": "same-site"},
    ):
        assert proxied.ask("GET", "/team/api/questions", {**good, **forged}).status_code == 403
    for token in ("", TOKEN, "anna"):
        assert (
            proxied.ask("GET", "/team/api/questions", {**good, "Authorization": f"Bearer {token}"}).status_code == 401
        )


def test_the_audit_log_has_who_asked_for_what(proxied: SiteServer, tmp_path: Path) -> None:
    good = {"Host": "a.example", "Authorization": f"Bearer {ANNA}", "X-Forwarded-For": "6.6.6.6, 10.0.0.7"}
    proxied.ask("GET", "/team/", good)
    proxied.ask("GET", "/team/app.js", good)
    proxied.ask("GET", "/team/api/alive", good)
    proxied.ask("GET", "/team/api/result?name=comm", good)
    proxied.ask("POST", "/team/api/sql", good, json={"query": "select\n1"})
    proxied.ask("GET", "/team/api/alive", {**good, "Authorization": "Bearer wrong"})
    proxied.ask("GET", "/team/api/result?name=comm", {**good, "Host": "b.example", "X-Forwarded-For": "\n{}"})
    log = entries(tmp_path / "audit")
    kept = ("reader", "address", "method", "path", "query", "body", "status")
    assert [tuple(entry.get(name) for name in kept) for entry in log] == [
        ("anna", "10.0.0.7", "GET", "/api/result", {"name": "comm"}, None, 200),
        ("anna", "10.0.0.7", "POST", "/api/sql", {}, {"query": "select\n1"}, 200),
        (None, "10.0.0.7", "GET", "/api/alive", {}, None, 401),
        ("anna", "unknown", "GET", "/api/result", {"name": "comm"}, None, 403),
    ]
    assert ANNA not in (tmp_path / "audit").read_text()
    assert (tmp_path / "audit").stat().st_mode & 0o777 == 0o600


def test_a_request_adds_one_line_of_ascii_whatever_it_contains(proxied: SiteServer, tmp_path: Path) -> None:
    good = {"Host": "a.example", "Authorization": f"Bearer {ANNA}"}
    for text in ('x"}\n{"reader": "ben"', "\x1b[2J", "\u2028\u202e", "é" * 10_000, "\x00"):
        before = len(entries(tmp_path / "audit"))
        proxied.ask("GET", "/team/api/result", good, params={"name": text})
        proxied.ask("POST", "/team/api/whatif", good, json={"changes": [[text, text]], text: text})
        raw = (tmp_path / "audit").read_bytes()
        assert raw.count(b"\n") == before + 2
        assert all(32 <= byte < 127 for byte in raw.replace(b"\n", b""))
        assert all(len(line) < 3000 for line in raw.splitlines())


@pytest.mark.parametrize("depth", [10, 800])
def test_a_request_is_noted_however_deep_its_body_is(proxied: SiteServer, tmp_path: Path, depth: int) -> None:
    """Otherwise a reader could ask for anything unnoticed."""
    good = {"Host": "a.example", "Authorization": f"Bearer {ANNA}", "Content-Type": "application/json"}
    body = '{"query": "select 1", "more": ' + "[" * depth + "]" * depth + "}"
    assert proxied.ask("POST", "/team/api/sql", good, content=body).status_code == 200
    (entry,) = entries(tmp_path / "audit")
    assert (entry["reader"], entry["body"]["query"]) == ("anna", "select 1")


def test_without_its_log_nothing_is_answered(
    proxied: SiteServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good = {"Host": "a.example", "Authorization": f"Bearer {ANNA}"}
    (tmp_path / "audit").unlink()
    (tmp_path / "audit").mkdir()
    answer = proxied.ask("GET", "/team/api/result?name=comm", good)
    assert answer.status_code == 503
    assert answer.json() == {"error": "the audit log cannot be written: ask the owner of this server"}
    assert "cannot be written" in capsys.readouterr().err
    (tmp_path / "audit").rmdir()
    assert proxied.ask("GET", "/team/api/result?name=comm", good).status_code == 200
    assert len(entries(tmp_path / "audit")) == 1


def test_a_log_that_is_moved_away_is_begun_again(proxied: SiteServer, tmp_path: Path) -> None:
    good = {"Host": "a.example", "Authorization": f"Bearer {ANNA}"}
    proxied.ask("GET", "/team/api/result?name=comm", good)
    os.replace(tmp_path / "audit", tmp_path / "audit.1")  # noqa: PTH105
    proxied.ask("GET", "/team/api/result?name=comm", good)
    assert [len(entries(tmp_path / name)) for name in ("audit", "audit.1")] == [1, 1]


def test_a_log_is_not_written_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("")
    (tmp_path / "audit").symlink_to(tmp_path / "precious")
    with pytest.raises(UsageError, match="cannot be written"):
        AuditLog(tmp_path / "audit")


def test_clients_of_a_server_without_a_proxy_do_not_choose_their_address(run_folder: Path, tmp_path: Path) -> None:
    live = LivePage(run_folder)
    server = SiteServer(RunSite(live), local_entrance(PORT, OneReader(TOKEN)), AuditLog(tmp_path / "audit"))
    headers = {"Host": HOST, "Authorization": f"Bearer {TOKEN}", "X-Forwarded-For": "10.0.0.7"}
    server.ask("GET", "/api/result?name=comm", headers)
    [entry] = entries(tmp_path / "audit")
    assert (entry["reader"], entry["address"]) == ("owner", "127.0.0.1")
    assert live.close()

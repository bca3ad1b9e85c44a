"""A fleet's page for a team: a real nginx in front of a real server, with TLS."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from tests.fleet.made_fleets import make_fleet
from tests.fleet.made_runs import make_summary

import lostflops

pytest.importorskip("pyiceberg", reason="the extra fleet is not installed")
NGINX = shutil.which("nginx", path=os.environ.get("PATH", "") + ":/usr/sbin")
DOCS = Path(__file__).parents[3] / "docs" / "how-to" / "live-page.md"
NAME = "lostflops.example.org"
TOKEN = "t" * 40
SOURCE = str(Path(lostflops.__file__).parent.parent)


@dataclass(frozen=True)
class Team:
    """What a reader's browser sees."""

    port: int
    tls: ssl.SSLContext
    audit: Path
    direct: int
    """Port of the server itself."""

    def ask(self, path: str, token: str = TOKEN, **headers: str) -> httpx.Response:
        given = {"Host": NAME, **({"Authorization": f"Bearer {token}"} if token else {}), **headers}
        with httpx.Client(verify=self.tls, trust_env=False, timeout=60) as client:
            extensions = {"sni_hostname": NAME}
            return client.get(f"https://127.0.0.1:{self.port}{path}", headers=given, extensions=extensions)


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def documented_location() -> str:
    """The configuration that the docs show, as it is."""
    text = DOCS.read_text("utf-8")
    return text.partition("```nginx\n")[2].partition("```")[0]


def configuration(folder: Path, port: int, server: int) -> str:
    location = documented_location().replace("127.0.0.1:8765", f"127.0.0.1:{server}")
    return f"""
daemon off; master_process off; pid {folder}/pid; error_log {folder}/error.log;
events {{}}
http {{
  access_log off;
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
  server {{
    listen 127.0.0.1:{port} ssl; server_name {NAME};
    ssl_certificate {folder}/cert.pem; ssl_certificate_key {folder}/key.pem;
    {location}
  }}
}}
"""


@pytest.fixture(scope="module")
def team(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Team]:
    if NGINX is None or shutil.which("openssl") is None:
        pytest.skip("nginx or openssl is not installed")
    folder = tmp_path_factory.mktemp("nginx")
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={NAME}"]
    command += ["-addext", f"subjectAltName=DNS:{NAME}", "-keyout", f"{folder}/key.pem", "-out", f"{folder}/cert.pem"]
    subprocess.run(command, check=True, capture_output=True)
    (folder / "tokens").write_text(f"anna {TOKEN}\n")
    (folder / "tokens").chmod(0o600)
    place = make_fleet(folder / "fleet", [make_summary(n) for n in range(3)])
    port, server = free_port(), free_port()
    (folder / "nginx.conf").write_text(configuration(folder, port, server))
    serve = [sys.executable, "-m", "lostflops", "serve", str(place), "--port", str(server), "--no-browser"]
    serve += ["--behind", f"https://{NAME}/team/", "--token-file", f"{folder}/tokens", "--audit", f"{folder}/audit"]
    environment = {**os.environ, "PYTHONPATH": SOURCE}
    with (
        subprocess.Popen(serve, stdout=subprocess.PIPE, text=True, env=environment) as program,
        subprocess.Popen([NGINX, "-p", str(folder), "-c", f"{folder}/nginx.conf"], stderr=subprocess.PIPE) as proxy,
    ):
        assert program.stdout is not None
        printed = next(line for line in program.stdout if "https://" in line)
        assert printed.split()[0] == f"https://{NAME}/team/#token=TOKEN,"
        wait_for(port)
        yield Team(port, ssl.create_default_context(cafile=f"{folder}/cert.pem"), folder / "audit", server)
        proxy.terminate()
        program.send_signal(signal.SIGINT)


def wait_for(port: int) -> None:
    for _ in range(300):
        with socket.socket() as found:
            if found.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise TimeoutError(f"no server on port {port}")


OVERVIEW = "/team/api/overview?job=&team=&model=&host=&week=&status=&width=900&by="


def test_a_reader_with_a_token_sees_the_fleet(team: Team) -> None:
    page = team.ask("/team/", token="")
    assert page.status_code == 200
    assert 'src="fleet.js"' in page.text
    assert team.ask("/team/fleet.js", token="").status_code == 200
    found = team.ask(OVERVIEW)
    assert "3 runs of 1 job used 60 GPU-hours" in found.json()["html"]
    assert team.ask(OVERVIEW, Origin=f"https://{NAME}").status_code == 200
    assert found.headers["Content-Security-Policy"].startswith("default-src 'none'")


def test_nobody_else_does(team: Team) -> None:
    for token in ("", "wrong", TOKEN[:-1]):
        assert team.ask(OVERVIEW, token=token).status_code == 401
    assert team.ask(OVERVIEW, Origin="https://evil.example").status_code == 403
    assert team.ask(OVERVIEW, **{"Sec-Fetch-Site": "cross-site"}).status_code == 403
    with httpx.Client(trust_env=False) as client:
        direct = client.get(f"http://127.0.0.1:{team.direct}{OVERVIEW}", headers={"Authorization": f"Bearer {TOKEN}"})
    assert direct.status_code == 403


def test_the_log_names_the_reader_and_the_address_that_nginx_saw(team: Team) -> None:
    team.ask(OVERVIEW.replace("team=&", "team=audited&"), **{"X-Forwarded-For": "6.6.6.6"})
    entry = json.loads(team.audit.read_text().splitlines()[-1])
    assert entry["query"]["team"] == "audited"
    assert (entry["reader"], entry["address"], entry["path"]) == ("anna", "127.0.0.1", "/api/overview")
    assert TOKEN not in team.audit.read_text()


def test_a_path_without_its_slash_leads_to_the_page(team: Team) -> None:
    answer = team.ask("/team", token="")
    assert answer.status_code == 301
    assert answer.headers["location"].endswith("/team/")

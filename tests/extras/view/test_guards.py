"""Who may ask the view server: literal requests to the real application, and the status each of them gets."""

import asyncio
import socket
from pathlib import Path

import pytest

from ragpipe.core.errors import ConfigError
from ragpipe.extras.view.view_server import HEADERS, ViewOptions, ViewServer, view_serving
from tests.extras.view.viewed_runs import allowed, client_of

pytestmark = pytest.mark.slow  # made runs, simulations and compositions: over 30 ms a test
HOST = "127.0.0.1:8080"

# method, path, headers over those of a browser with the cookie (None takes one away), status
REQUESTS: list[tuple[str, str, dict[str, str | None], int]] = [
    ("GET", "/", {}, 200),
    ("HEAD", "/", {}, 200),
    ("GET", "/progress", {}, 200),
    ("GET", "/index.json", {}, 200),
    ("GET", "/nowhere", {}, 404),
    ("GET", "/shared", {}, 404),
    ("GET", "/shared?a=../x&b=../x", {}, 404),
    ("GET", "/shared", {"Cookie": None}, 401),
    # no token, a wrong one, that of another port
    ("GET", "/", {"Cookie": None}, 401),
    ("GET", "/progress", {"Cookie": None}, 401),
    ("GET", "/nowhere", {"Cookie": None}, 401),
    ("GET", "/", {"Cookie": "ragpipe-view-8080=x"}, 401),
    ("GET", "/", {"Cookie": "ragpipe-view-8080="}, 401),
    ("GET", "/", {"Cookie": "ragpipe-view-9090=TOKEN"}, 401),
    ("GET", "/?token=x", {"Cookie": None}, 401),
    ("GET", "/?token=", {"Cookie": None}, 401),
    ("GET", "/?token=x", {}, 401),
    ("GET", "/?token=%F0%9F%A6%8A", {"Cookie": None}, 401),
    ("GET", "/?token=TOKEN", {"Cookie": None}, 303),
    ("GET", "/progress?token=TOKEN", {"Cookie": None}, 401),
    # names of the host
    ("GET", "/", {"Host": "localhost:8080"}, 200),
    ("GET", "/", {"Host": "LOCALHOST"}, 200),
    ("GET", "/", {"Host": "localhost:9999"}, 200),
    ("GET", "/", {"Host": "[::1]:8080"}, 200),
    ("GET", "/", {"Host": "evil.example"}, 403),
    ("GET", "/", {"Host": "localhost.evil.example:8080"}, 403),
    ("GET", "/", {"Host": "127.0.0.1.evil.example"}, 403),
    ("GET", "/", {"Host": "evil.example:8080@localhost"}, 403),
    ("GET", "/", {"Host": "localhost:8080:1"}, 403),
    ("GET", "/", {"Host": "0.0.0.0:8080"}, 403),
    ("GET", "/", {"Host": "[::2]"}, 403),
    ("GET", "/", {"Host": ""}, 403),
    ("GET", "/?token=TOKEN", {"Host": "evil.example", "Cookie": None}, 403),
    # methods
    ("POST", "/", {}, 405),
    ("PUT", "/progress", {}, 405),
    ("DELETE", "/", {}, 405),
    ("OPTIONS", "/", {}, 405),
    ("PATCH", "/nowhere", {"Cookie": None}, 405),
    # other pages
    ("GET", "/", {"Sec-Fetch-Site": "none"}, 200),
    ("GET", "/progress", {"Sec-Fetch-Site": "same-origin"}, 200),
    ("GET", "/", {"Sec-Fetch-Site": "cross-site"}, 403),
    ("GET", "/progress", {"Sec-Fetch-Site": "same-site"}, 403),
    ("GET", "/?token=TOKEN", {"Sec-Fetch-Site": "cross-site", "Cookie": None}, 403),
    ("GET", "/progress", {"Origin": f"http://{HOST}"}, 200),
    ("GET", "/progress", {"Origin": "http://127.0.0.1:9999"}, 403),
    ("GET", "/progress", {"Origin": "http://evil.example"}, 403),
    ("GET", "/progress", {"Origin": "null"}, 403),
    ("GET", "/progress", {"Origin": "file://"}, 403),
    ("GET", "/progress", {"Origin": "http://[x"}, 403),
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "outputs").mkdir()
    return tmp_path / "outputs"


async def test_each_request_gets_the_status_of_the_table(folder: Path) -> None:
    async with client_of(folder) as (client, server):
        results = []
        for method, path, changed, _ in REQUESTS:
            headers = {**allowed(server), **changed}
            sent = {name: value.replace("TOKEN", server.token) for name, value in headers.items() if value is not None}
            answer = await client.request(method, path.replace("TOKEN", server.token), headers=sent, allow_redirects=False)
            results.append((method, path, changed, answer.status))
            assert set(HEADERS) <= set(answer.headers), (method, path, changed)
            if answer.status in (401, 403, 405):
                assert server.token not in await answer.text()
        assert results == REQUESTS


async def test_the_cookie_and_the_headers(folder: Path) -> None:
    async with client_of(folder) as (client, server):
        answer = await client.get(f"/?token={server.token}", headers={"Host": HOST}, allow_redirects=False)
        assert answer.headers["Location"] == "/"
        cookie = answer.headers["Set-Cookie"]
        assert cookie.startswith(f"ragpipe-view-8080={server.token};")
        assert {"httponly", "samesite=strict", "path=/"} <= {part.strip().lower() for part in cookie.split(";")}
        assert "domain" not in cookie.lower()
        for path in ("/", "/progress", "/index.json", "/nowhere"):
            headers = (await client.get(path, headers=allowed(server))).headers
            assert headers["Cache-Control"] == "no-store"
            assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
            assert headers["X-Content-Type-Options"] == "nosniff"
            assert headers["Referrer-Policy"] == "no-referrer"
            assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
            assert "Access-Control-Allow-Origin" not in headers


async def test_a_port_that_is_in_use_is_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"(?s)view.port.*{port}: another program is using it.*view.port=0"):
            async with view_serving(ViewServer(ViewOptions(Path(), port))):
                pass


async def test_the_server_listens_on_the_loopback_address_alone(folder: Path) -> None:
    async with view_serving(ViewServer(ViewOptions(folder))) as port:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.close()
        for other in ("127.0.0.2", "::1"):
            with pytest.raises(OSError):  # noqa: PT011 - which error depends on the system
                await asyncio.open_connection(other, port)

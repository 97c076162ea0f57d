"""The server: what it answers, and what it refuses."""

import asyncio
import json
import socket
import time
import urllib.error
import urllib.parse
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from browser import serving
from regard.explore import listen
from regard.explore.arrays import unpack
from regard.explore.server import make_app
from regard.explore.session import Session

SENTENCE = "The old farmer helps the child."


@pytest.fixture(scope="module")
def address(trained):
    session = Session([trained], {"text": SENTENCE})
    with serving(session) as address:
        yield address
    session.close()


def asked(address, path, content=None, **headers):
    """The status and the body of the response."""
    body = content if content is None or isinstance(content, bytes) else json.dumps(content).encode()
    request = urllib.request.Request(address + path, data=body, headers=headers)
    try:
        with urllib.request.urlopen(request) as response:
            return response.status, response.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def refused(address, content, path="api/ask"):
    """The three lines of an error; its status is 400 where the request makes no sense at all."""
    status, body = asked(address, path, content)
    error = json.loads(body)
    assert set(error) == {"what", "why", "fix"} and all(error.values())
    assert status == (400 if error["what"] == "The request cannot be read." else 200)
    return error


def test_a_users_mistake_is_not_an_error_in_the_browsers_console(trained, opened):
    """Errors in the console and failed requests fail the test (browser.py)."""
    with opened(trained, text=SENTENCE) as at:
        at.page.get_by_label("Text").fill("")
        at.page.get_by_role("button", name="Inspect").click()
        assert "missing" in at.page.get_by_role("alert").inner_text()
        at.page.get_by_label("Text").evaluate("field => (field.value = 'a \\ud83d b')")
        at.page.get_by_role("button", name="Inspect").click()
        at.page.get_by_role("alert").get_by_text("unpaired surrogate").wait_for()


def test_a_full_matrix_has_every_digit_of_the_models(address, trained):
    weights = trained.trace(SENTENCE)["encoder"].layers[0].part("mixer").attention().weights_BHTS[0]
    request = {"input": {"text": SENTENCE}, "name": "encoder.0.mixer.weights"}
    status, body = asked(address, "api/matrix", request | {"full": True})
    assert status == 200
    np.testing.assert_allclose(json.loads(body)["values"], weights.numpy(), atol=1e-6)
    head, values = unpack(asked(address, "api/matrix", request)[1])
    assert head["kind"] == "unit" and abs(values - weights.numpy()).max() <= 0.5 / 1023 + 1e-6


def test_a_window_is_a_part_of_the_matrix(address):
    request = {"input": {"text": SENTENCE}, "name": "encoder.1.mixer.scores", "head": 1, "full": True}
    whole = np.array(json.loads(asked(address, "api/matrix", request)[1])["values"])
    window = json.loads(asked(address, "api/matrix", request | {"rows": [2, 4], "columns": [1, 6]})[1])
    assert window["from"] == [2, 1] and np.array_equal(window["values"], whole[2:4, 1:6])


def test_only_the_page_and_its_modules_are_served(address):
    status, page = asked(address, "")
    assert status == 200 and b"importmap" in page
    assert asked(address, "page/app.js")[0] == 200
    outside = ["page/../__init__.py", "page/%2e%2e/server.py", "page//etc/passwd", "page/__init__.py", "etc/passwd"]
    for path in [*outside, "page/index.html", "page/..%2f..%2fregistry.py"]:
        status, body = asked(address, path)
        assert status == 404 and b"import" not in body and b"root:" not in body, path


def test_other_host_names_and_other_sites_are_refused(address):
    request = {"input": {"text": SENTENCE}, "what": "overview"}
    assert asked(address, "api/ask", request, Host="evil.example")[0] == 400
    assert asked(address, "", Host="evil.example")[0] == 400
    assert asked(address, "api/ask", request, Origin="http://evil.example")[0] == 403
    assert asked(address, "api/ask", request, Origin=address.rstrip("/"))[0] == 200


def test_only_this_page_can_upload_an_image(address):
    status, body = asked(address, "api/upload?name=a%20b.png", b"any bytes", Origin=address.rstrip("/"))
    assert status == 200 and json.loads(body)["image"].endswith("-a b.png")
    assert asked(address, "api/upload?name=a.png", b"any bytes", Origin="http://evil.example")[0] == 403
    assert "cannot be read" in refused(address, b"", "api/upload?name=a.png")["what"]


def test_a_disconnected_browser_is_not_an_error(trained):
    async def receive():
        return {"type": "http.disconnect"}

    async def send(message):
        sent.append(message)

    sent = []
    session = Session([trained], {"text": SENTENCE})
    headers = [(b"host", b"127.0.0.1")]
    scope = {"type": "http", "method": "POST", "path": "/api/ask", "headers": headers, "query_string": b""}
    with ThreadPoolExecutor() as pool:  # elsewhere a browser's loop may be running
        pool.submit(lambda: asyncio.run(make_app(session)(scope, receive, send))).result()
    assert sent[0]["status"] == 400
    session.close()


def test_what_nobody_waits_for_any_more_is_not_computed(trained):
    texts = ["A child left.", "The dog left."]
    session = Session([trained], {"text": SENTENCE})
    with serving(session) as address:
        host = urllib.parse.urlsplit(address)
        with session.lock:  # the first to arrive waits for this, the second for the first
            for text in texts:
                body = json.dumps({"what": "overview", "input": {"text": text}})
                head = f"POST /api/ask HTTP/1.1\r\nHost: {host.netloc}\r\nContent-Length: {len(body)}\r\n\r\n"
                with socket.create_connection((host.hostname, host.port)) as left:
                    left.sendall((head + body).encode())
                    time.sleep(0.1)  # so that it is read before it is closed
            time.sleep(0.1)
        assert asked(address, "api/ask", {"what": "overview", "input": {"text": SENTENCE}})[0] == 200
        computed = [text for text in texts if any(text in key for key in session._traced)]
        assert len(computed) <= 1
    session.close()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "cannot be read"),
        (b"{", "cannot be read"),
        ({"what": "overview", "more": 1}, "cannot be read"),
        ({"what": "lok"}, "cannot be asked"),
        ({"what": "overview", "run": 3}, "no run 4"),
        ({"what": "overview", "run": -1}, "no run 0"),
        ({"what": "overview", "input": {}}, "text is missing"),
        ({"what": "overview", "input": {"text": "   "}}, "text is missing"),
        ({"what": "overview", "input": {"text": "\u00a0\u2003"}}, "text is missing"),  # spaces too
        ({"what": "overview", "input": {"text": 3}}, "not a text"),
        ({"what": "overview", "input": {"text": "\ud800"}}, "cannot be read"),
        ({"what": "overview", "input": {"image": "/etc/passwd"}}, "no 'image'"),
        ({"what": "overview", "input": {"text": "a" * 300_000}}, "too long"),
        ({"what": "overview", "input": {"text": SENTENCE, "tokens": [[1]]}}, "tokens cannot be read"),
        ({"what": "overview", "input": {"text": SENTENCE, "tokens": [[10**9], [1]]}}, "tokens cannot be read"),
        ({"what": "overview", "input": {"text": SENTENCE}, "options": {"x": 1}}, "cannot be asked like this"),
        ({"what": "ablate", "input": {"text": SENTENCE}, "options": {"heads": ["decoder.9.mixer.0"]}}, "not a head"),
        ({"what": "ablate", "input": {"text": SENTENCE}, "options": {"heads": "all"}}, "like this"),
        ({"what": "ablate", "input": {"text": SENTENCE}, "options": {"positions": [["encoder", 99]]}}, "no position"),
    ],
)
def test_a_bad_request_gets_three_lines(address, content, message):
    assert message in refused(address, content)["what"]


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "encoder.0.mixer.secrets"},
        {"name": "encoder.0.feedforward.weights"},
        {"name": "decoder.7.mixer.weights"},
        {"name": "logits.weights"},
        {"name": "encoder.0.mixer.weights", "head": 99},
        {"name": "encoder.0.mixer.weights", "rows": [0, 99]},
        {"name": "encoder.0.mixer.weights", "rows": [3, 3]},
        {"name": "__class__"},
    ],
)
def test_a_missing_matrix_is_refused(address, changes):
    refused(address, {"input": {"text": SENTENCE}} | changes, "api/matrix")


@pytest.mark.parametrize("text", ["ب🙂é̂\u202e", "<script>alert(1)</script>", "\x00\x07", "\u200b", "a" * 300])
def test_strange_texts_are_traced(address, trained, text):
    """None of their letters is a token, so each is read byte by byte."""
    status, body = asked(address, "api/ask", {"what": "overview", "input": {"text": text}})
    content = json.loads(body)
    assert status == 200 and content["input_text"] == text
    assert content["output_text"] == trained.translate([text])[0] != ""
    space, *spelled, end = content["stacks"][0]["pieces"]
    assert (space, end) == ("<0x20>", "<end>")
    assert bytes(int(piece[1:-1], 16) for piece in spelled) == text.encode()
    assert content["difference"] < 1e-4  # and so every logit is finite
    assert ["longer than any sentence" in warning for warning in content["warnings"]] == [True] * (len(text) > 32)


def test_concurrent_requests_get_their_own_answers(address, trained):
    texts = [SENTENCE, "The dog sleeps.", "A child sees the old house."] * 4
    with ThreadPoolExecutor(6) as pool:
        bodies = list(
            pool.map(lambda t: asked(address, "api/ask", {"what": "overview", "input": {"text": t}})[1], texts)
        )
    outputs = [json.loads(body)["output_text"] for body in bodies]
    assert outputs == trained.translate(texts)


def test_small_answers_do_not_wait_for_an_acknowledgement():
    """asyncio sets TCP_NODELAY only on connections whose socket is known to be TCP."""

    async def delays() -> int:
        connected = asyncio.get_running_loop().create_future()
        server = await asyncio.start_server(lambda reader, writer: connected.set_result(writer), sock=listen())
        async with server:
            _, client = await asyncio.open_connection(*server.sockets[0].getsockname())
            answering = await connected
            no_delay = answering.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            for writer in (client, answering):
                writer.close()
        return no_delay

    with ThreadPoolExecutor(1) as pool:  # in this thread, Playwright may have an event loop of its own
        assert pool.submit(lambda: asyncio.run(delays())).result() != 0

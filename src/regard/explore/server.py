"""The page over HTTP, for this machine only.

    GET  /                the page
    GET  /page/NAME       its modules and style
    GET  /api/runs        the runs, and the input to begin with
    POST /api/ask         {"run", "input", "what", "options"}: the answer to a question, as JSON
    POST /api/upload      an image, with ?name=: {"image": the name that an input may use for it}
    POST /api/matrix      {"run", "input", "name", …}: a matrix, packed (arrays.py); with "full", all digits as JSON

It listens on 127.0.0.1 and refuses requests for another host name or from another site's page: otherwise any page that
is open in the browser could read the inputs.
"""

from __future__ import annotations

import asyncio
import json
import sys
import traceback
from collections.abc import Callable
from functools import cache
from importlib.resources import files
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from regard.errors import RegardError, UsageError
from regard.explore import HOST
from regard.explore.matrices import matrix
from regard.explore.page import index, modules
from regard.explore.questions import answer, runs
from regard.explore.session import Session

MOST_BYTES = 80 * 2**20  # of a request; images are the largest
TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
# Nothing loads from elsewhere, whatever the texts on the page contain.
POLICY = (
    "default-src 'none'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
PROBLEM = "application/problem+json"  # an error in what, why and fix, whatever the status
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


class QuestionBody(BaseModel):
    model_config = ConfigDict(extra="forbid")

    run: int = 0
    input: dict[str, Any] = {}
    what: str
    options: dict[str, Any] = {}


class MatrixBody(BaseModel):
    model_config = ConfigDict(extra="forbid")

    run: int = 0
    input: dict[str, Any] = {}
    name: str
    head: int | None = None
    rows: tuple[int, int] | None = None
    columns: tuple[int, int] | None = None
    most: int = 512
    full: bool = False  # as JSON


def make_app(session: Session) -> Starlette:
    """The application. Everything that touches a model runs in a thread, one request at a time.

    Requests wait for the model without a thread: if many waited in threads, none would be left to list the runs.
    """
    model_is_free = asyncio.Lock()

    async def in_turn(request: Request, respond: Callable[[], Response]) -> Response:
        async with model_is_free:
            if await request.is_disconnected():  # such as by loading the page again
                raise HTTPException(400, "The request ended early.")
            return await _respond(respond)

    @cache  # the first inputs may come from a corpus, or from a game that is played
    def all_runs() -> dict[str, Any]:
        return {"runs": runs(session), "first": session.first}

    async def page(request: Request) -> Response:
        return HTMLResponse(index(), headers=HEADERS)

    async def file(request: Request) -> Response:
        name = request.path_params["name"]
        if name not in modules():  # names, not paths: nothing outside the page can be read
            return _error(UsageError(f"There is no '{name}'.", "It is not part of the page.", "Open /."), 404)
        content = (files("regard.explore") / "page" / name).read_bytes()
        kind = TYPES[name[name.rindex(".") :]]
        return Response(content, media_type=kind, headers=HEADERS)

    async def list_runs(request: Request) -> Response:
        return await _respond(lambda: JSONResponse(all_runs()))

    async def ask(request: Request) -> Response:
        body = await _body(request)

        def respond() -> Response:
            question = QuestionBody.model_validate_json(body)
            content = answer(session, question.run, question.input, question.what, question.options)
            return Response(json.dumps(content, allow_nan=False), media_type="application/json")

        return await in_turn(request, respond)

    async def ask_matrix(request: Request) -> Response:
        body = await _body(request)

        def respond() -> Response:
            wanted = MatrixBody.model_validate_json(body)
            with session.lock:
                traced = session.traced(wanted.run, wanted.input)
                result = matrix(traced, wanted.name, wanted.head, wanted.rows, wanted.columns, wanted.most)
            if wanted.full:
                return JSONResponse(result.head | {"values": _finite(result.values.tolist())})
            return Response(result.message(), media_type="application/octet-stream")

        return await in_turn(request, respond)

    async def upload(request: Request) -> Response:
        body = await _body(request)
        name = request.query_params.get("name", "")
        return await in_turn(request, lambda: JSONResponse({"image": session.upload(name, body)}))

    routes = [
        Route("/", page),
        Route("/page/{name:path}", file),
        Route("/api/runs", list_runs),
        Route("/api/ask", ask, methods=["POST"]),
        Route("/api/matrix", ask_matrix, methods=["POST"]),
        Route("/api/upload", upload, methods=["POST"]),
    ]
    return Starlette(
        routes=routes,
        middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=[HOST, "localhost"], www_redirect=False)],
    )


async def _body(request: Request) -> bytes:
    """The body of a request from this page, up to a limit."""
    origin = request.headers.get("origin")
    if origin is not None and origin.partition("//")[2] != request.headers.get("host"):
        raise HTTPException(403, "Another site's page may not ask.")
    body = bytearray()
    try:
        async for part in request.stream():
            body += part
            if len(body) > MOST_BYTES:
                raise HTTPException(413, f"A request may have at most {MOST_BYTES:,} bytes.")
    except ClientDisconnect:  # nobody is left to answer
        raise HTTPException(400, "The request ended early.") from None
    return bytes(body)


async def _respond(respond: Callable[[], Response]) -> Response:
    """The response that `respond` computes in a thread, or its error."""
    try:
        response = await run_in_threadpool(respond)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "it"
        response = _error(UsageError("The request cannot be read.", f"{where}: {first['msg']}.", "Send another."), 400)
    except RegardError as error:  # 200: the request was understood, and browsers log other statuses as errors
        response = _error(error, 200)
    except Exception:  # a bug: it is printed, and the page stays usable
        traceback.print_exc(file=sys.stderr)
        response = _error(
            RegardError("This could not be computed.", "The reason is printed in the terminal.", "Try another input."),
            500,
        )
    response.headers.update(HEADERS)
    return response


def _error(error: RegardError, status: int) -> Response:
    content = {"what": error.what, "why": error.why, "fix": error.fix}
    return JSONResponse(content, status_code=status, headers=HEADERS, media_type=PROBLEM)


def _finite(value: Any) -> Any:
    """None for numbers that are not finite, which JSON cannot express."""
    if isinstance(value, list):
        return [_finite(element) for element in value]
    return value if abs(value) < float("inf") else None

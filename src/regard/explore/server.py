"""The page over HTTP, for this machine only.

    GET  /                the page
    GET  /page/NAME       its modules and style
    GET  /api/runs        the runs, and the input to begin with
    POST /api/ask         {"run", "input", "what", "options"}: an answer as JSON
    POST /api/upload      an image, with ?name=: {"image": what it is called in an input from now on}
    POST /api/matrix      {"run", "input", "name", …}: a matrix, packed (arrays.py); with "full": all digits, as JSON

It listens on 127.0.0.1. Requests that were meant for another name, or that another site's page sends, are refused:
else a page from anywhere could read what is looked at here.
"""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Callable
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

MOST_BYTES = 80 * 2**20  # of a request: an image
TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
# Nothing from elsewhere, whatever is in a text that is shown.
POLICY = (
    "default-src 'none'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
PROBLEM = "application/problem+json"  # an error, whatever the status: what, why and fix
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


class Ask(BaseModel):
    model_config = ConfigDict(extra="forbid")

    run: int = 0
    input: dict[str, Any] = {}
    what: str
    options: dict[str, Any] = {}


class AskMatrix(BaseModel):
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
    """The application. Everything that touches a model runs in a thread, one request at a time."""

    async def page(request: Request) -> Response:
        return HTMLResponse(index(), headers=HEADERS)

    async def file(request: Request) -> Response:
        name = request.path_params["name"]
        if name not in modules():  # names, not paths: nothing else can be asked for
            return _error(UsageError(f"There is no '{name}'.", "It is not part of the page.", "Open /."), 404)
        content = (files("regard.explore") / "page" / name).read_bytes()
        kind = TYPES[name[name.rindex(".") :]]
        return Response(content, media_type=kind, headers=HEADERS)

    async def told(request: Request) -> Response:
        return await _answered(lambda: JSONResponse({"runs": runs(session), "first": session.first}))

    async def ask(request: Request) -> Response:
        body = await _body(request)

        def answered() -> Response:
            asked = Ask.model_validate_json(body)
            content = answer(session, asked.run, asked.input, asked.what, asked.options)
            return Response(json.dumps(content, allow_nan=False), media_type="application/json")

        return await _answered(answered)

    async def ask_matrix(request: Request) -> Response:
        body = await _body(request)

        def answered() -> Response:
            asked = AskMatrix.model_validate_json(body)
            with session.lock:
                looked = session.looked(asked.run, asked.input)
                made = matrix(looked, asked.name, asked.head, asked.rows, asked.columns, asked.most)
            if asked.full:
                return JSONResponse(made.head | {"values": _finite(made.values.tolist())})
            return Response(made.message(), media_type="application/octet-stream")

        return await _answered(answered)

    async def upload(request: Request) -> Response:
        body = await _body(request)
        name = request.query_params.get("name", "")
        return await _answered(lambda: JSONResponse({"image": session.send(name, body)}))

    routes = [
        Route("/", page),
        Route("/page/{name:path}", file),
        Route("/api/runs", told),
        Route("/api/ask", ask, methods=["POST"]),
        Route("/api/matrix", ask_matrix, methods=["POST"]),
        Route("/api/upload", upload, methods=["POST"]),
    ]
    return Starlette(
        routes=routes,
        middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=[HOST, "localhost"], www_redirect=False)],
    )


async def _body(request: Request) -> bytes:
    """What was sent, if this page sent it and it is not endless."""
    origin = request.headers.get("origin")
    if origin is not None and origin.partition("//")[2] != request.headers.get("host"):
        raise HTTPException(403, "A page from elsewhere may not ask.")
    body = bytearray()
    try:
        async for part in request.stream():
            body += part
            if len(body) > MOST_BYTES:
                raise HTTPException(413, f"A request has at most {MOST_BYTES:,} bytes.")
    except ClientDisconnect:  # nobody is left to read the answer
        raise HTTPException(400, "The request ended early.") from None
    return bytes(body)


async def _answered(work: Callable[[], Response]) -> Response:
    try:
        response = await run_in_threadpool(work)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "it"
        response = _error(UsageError("The request cannot be read.", f"{where}: {first['msg']}.", "Send another."), 400)
    except RegardError as error:  # a mistake in an input is a question that was understood: no error of the page
        response = _error(error, 200)
    except Exception:  # a page that stays open is worth more than the reason, which is printed
        traceback.print_exc(file=sys.stderr)
        response = _error(
            RegardError("This could not be computed.", "The reason is printed by the command.", "Try another input."),
            500,
        )
    response.headers.update(HEADERS)
    return response


def _error(error: RegardError, status: int) -> Response:
    content = {"what": error.what, "why": error.why, "fix": error.fix}
    return JSONResponse(content, status_code=status, headers=HEADERS, media_type=PROBLEM)


def _finite(value: Any) -> Any:
    """None for what is not a number or not finite: JSON has no word for it."""
    if isinstance(value, list):
        return [_finite(each) for each in value]
    return value if abs(value) < float("inf") else None

"""The operations as JSON routes: ``GET /api/v1/NAME?parameter=value``, documented by ``GET /api/v1/openapi.json``.

    400        a parameter is wrong, or the request is too large
    404        no such route, run or attempt
    429, 503   retry after Retry-After seconds: too many calls wait, or the store does not answer
    500        a defect of rankscope

Errors are JSON {"error", "hint"}. The routes are a separate application. So the OpenAPI document has only these routes,
and their errors have this form. The server checks access as on every other route. There are no CORS headers, so pages
of other sites cannot read the answers.
"""

from collections.abc import Awaitable, Callable
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Query
from fastapi.exceptions import RequestValidationError
from fastapi.security import HTTPBearer
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from telemetry.collector.gates import refuse
from telemetry.errors import RankscopeError, UnknownRunError, UnreachableError
from telemetry.stores.interface import Reader
from telemetry.version import __version__
from ui.dashboard.data import Reads
from ui.dashboard.tools.calling import BusyError, Caller, FailedError
from ui.dashboard.tools.operations import BY_NAME, DATA_NOTE, OPERATIONS, Operation, refusal
from ui.dashboard.tools.parameters import Parameters
from ui.dashboard.tools.results import Refused

PREFIX = "/api/v1"
HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
TEXT = (
    "Read-only access to the runs of this server. Fields can be added to results; none is removed or renamed within "
    f"schema 1. {DATA_NOTE}"
)
TOKEN = HTTPBearer(auto_error=False, description="The read token or the full token, if the server has tokens.")
REFUSALS: dict[int | str, dict[str, Any]] = {
    400: {"model": Refused, "description": "A parameter is wrong, or the request is too large."},
    404: {"model": Refused, "description": "The run or the attempt is not stored."},
    "default": {"model": Refused, "description": "Any other error. 429 and 503: retry after Retry-After seconds."},
}


def serve_tools(server: FastAPI, reads: Reads, reader: Reader) -> None:
    """Add the routes to a server."""
    server.mount(PREFIX, make_api(Caller(reads, reader)))


def make_api(caller: Caller) -> FastAPI:
    """The application below PREFIX."""
    api = FastAPI(
        title="rankscope",
        version=__version__,
        description=TEXT,
        docs_url=None,
        redoc_url=None,
        dependencies=[Depends(TOKEN)],
        exception_handlers={RequestValidationError: _refuse_parameters, HTTPException: _refuse_route},
    )
    for operation in OPERATIONS:
        api.add_api_route(
            f"/{operation.name}",
            _endpoint(operation, caller),
            methods=["GET"],
            operation_id=operation.name,
            summary=operation.title,
            description=operation.description,
            response_model=operation.result,
            responses=REFUSALS,
        )
    return api


def _endpoint(operation: Operation, caller: Caller) -> Callable[..., Awaitable[Response]]:
    async def answer(asked: Parameters) -> Response:
        try:
            found = await caller.call(operation, asked)
        except RankscopeError as error:
            return _refused(_status(error), error)
        return Response(found.text, media_type="application/json", headers=HEADERS)

    answer.__annotations__["asked"] = Annotated[operation.parameters, Query()]
    return answer


def _status(error: RankscopeError) -> int:
    match error:
        case UnknownRunError():
            return 404
        case BusyError():
            return 429
        case UnreachableError():
            return 503
        case FailedError():
            return 500
        case _:
            return 400


def _refused(status: int, error: RankscopeError) -> JSONResponse:
    return refuse(status, error.message, error.hint, **HEADERS)


async def _refuse_parameters(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    operation = BY_NAME[request.url.path.rpartition("/")[2]]
    return _refused(400, refusal(operation, error.errors()))


async def _refuse_route(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    names = ", ".join(f"{PREFIX}/{name}" for name in (*BY_NAME, "openapi.json"))
    message = "no such route" if error.status_code == 404 else f"{request.method} is not allowed"
    return refuse(error.status_code, message, f"GET one of {names}", **HEADERS)

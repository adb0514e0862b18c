"""Every failure as a status, in one interceptor.

Ours travel with their details; anything else is INTERNAL with an id, under which the log has the
traceback. A caller never sees one.
"""

import logging
import uuid
from collections.abc import Callable
from typing import Any

import grpc
import grpc.aio

from haversack import status
from haversack.errors import HaversackError, InternalError, InvalidRequestError, OverloadedError
from haversack_server.service.around import METHODS, Around, Call

log = logging.getLogger(__name__)


class Errors(Around):
    """Maps errors to statuses, and requests that are no message to INVALID_ARGUMENT."""

    def deserializer(self, deserialize: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
        """Read a request, or say that it cannot be read; gRPC's own answer would be INTERNAL."""

        def read(data: bytes) -> Any:
            try:
                return deserialize(data)
            except Exception:  # each protobuf implementation has an error of its own
                return _UNREADABLE

        return read

    async def around(self, call: Call) -> Any:
        """Run a call; what it raises ends it with a status."""
        try:
            if call.request is _UNREADABLE:
                expected = METHODS[call.method].input_type.name
                raise InvalidRequestError(f"the bytes are not a {expected} message; send one")
            return await call.answer()
        except HaversackError as error:
            await _abort(call.context, error)
        except Exception:
            await _abort(call.context, _logged(call.method))


_UNREADABLE = object()


def _logged(method: str) -> InternalError:
    error_id = uuid.uuid4().hex[:12]
    log.exception("%s failed, id %s", method, error_id, extra={"error_id": error_id})
    return InternalError(f"a fault of the server; its log has it under the id {error_id}")


async def _abort(context: Any, error: HaversackError) -> None:
    trailers: list[tuple[str, str | bytes]] = [
        (status.DETAILS_KEY, status.status_of(error).SerializeToString())
    ]
    if isinstance(error, OverloadedError):
        trailers.append(("grpc-retry-pushback-ms", str(error.retry_after_ns // 10**6)))
    code = grpc.StatusCode[error.status]
    await context.abort(code, status.short(str(error)), tuple(trailers))

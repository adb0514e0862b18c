"""What the three interceptors share: each wraps every method of our service, and no other.

Health and reflection pass untouched. Servicer methods are coroutines, the streaming one too
(it writes its responses), so one wrapper fits both kinds and ends where the call ends.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import grpc
import grpc.aio

from haversack.v1 import service_pb2

SERVICE = service_pb2.DESCRIPTOR.services_by_name["HaversackService"]
METHODS = {f"/{SERVICE.full_name}/{each.name}": each for each in SERVICE.methods}

Handler = Any  # grpc.RpcMethodHandler, which is generic for checkers only
Run = Callable[[Any, Any], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Call:
    """A call that is to be run: ``await call.run(call.request, call.context)``."""

    method: str
    request: Any
    context: Any
    run: Run

    async def answer(self) -> Any:
        """Run it; the answer of a stream is None."""
        return await self.run(self.request, self.context)


class Around(grpc.aio.ServerInterceptor):
    """An interceptor that is one coroutine: ``around``."""

    def __init__(self) -> None:
        self._wrapped: dict[str, Handler] = {}

    async def around(self, call: Call) -> Any:
        """Run a call, and do what is to be done before and after it."""
        raise NotImplementedError

    def deserializer(self, deserialize: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
        """Choose how requests are read; as they were, unless an interceptor says otherwise."""
        return deserialize

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler:
        """Wrap the method of a call, once for each method."""
        method = handler_call_details.method
        if method in self._wrapped:
            return self._wrapped[method]
        handler = await continuation(handler_call_details)
        if method not in METHODS or handler is None:
            return handler
        self._wrapped[method] = self._wrap(method, handler)
        return self._wrapped[method]

    def _wrap(self, method: str, handler: Handler) -> Handler:
        run: Run = handler.unary_stream if handler.response_streaming else handler.unary_unary

        async def wrapped(request: Any, context: Any) -> Any:
            return await self.around(Call(method, request, context, run))

        make = (
            grpc.unary_stream_rpc_method_handler
            if handler.response_streaming
            else grpc.unary_unary_rpc_method_handler
        )
        return make(
            wrapped,
            request_deserializer=self.deserializer(handler.request_deserializer),
            response_serializer=handler.response_serializer,
        )

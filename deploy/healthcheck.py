"""Asks a server whether it serves: exit status 0 if it does, 1 if not.

    python healthcheck.py HOST:PORT

Speaks the standard gRPC health protocol, which the server answers even when it is full.
"""

import sys

import grpc
from grpc_health.v1 import health_pb2

DEADLINE_S = 4.0  # below the container's own limit of 5 s, so that the reason gets printed


def main(target: str) -> int:
    """Print the status of the server at ``target``; give the exit status."""
    # A proxy that the environment names has no business with a loopback address.
    with grpc.insecure_channel(target, options=[("grpc.enable_http_proxy", 0)]) as channel:
        check = channel.unary_unary(
            "/grpc.health.v1.Health/Check",
            request_serializer=health_pb2.HealthCheckRequest.SerializeToString,
            response_deserializer=health_pb2.HealthCheckResponse.FromString,
        )
        try:
            answer = check(health_pb2.HealthCheckRequest(), timeout=DEADLINE_S)
        except grpc.RpcError as error:
            print(f"{target}: {error.code().name}: {error.details()}")
            return 1
    status = health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status)
    print(f"{target}: {status}")
    return 0 if answer.status == health_pb2.HealthCheckResponse.SERVING else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))

#!/usr/bin/env bash
# Writes the Python stubs of proto/ into client/haversack/v1/.
#
#   scripts/generate_stubs.sh            write them
#   scripts/generate_stubs.sh --check    fail if the committed stubs are not what this script writes
#
# A stub refuses to run on a protobuf or grpcio older than the generator that wrote it, so the
# generator is the OLDEST pair we support. The .pyi files run nowhere: they come from a current
# mypy-protobuf, whose HaversackServiceStub is typed for both channels. The two cannot share an
# environment (protobuf < 6 against >= 6.32), hence two, both thrown away afterwards.
set -euo pipefail

generator=(grpcio-tools==1.71.2 grpcio==1.71.2 "protobuf==5.29.*" "setuptools<81")
typing=(mypy-protobuf==5.1.0)

root=$(cd "$(dirname "$0")/.." && pwd)
stubs=$root/client/haversack/v1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

environment() { # name, requirements...
    "${PYTHON:-python3}" -m venv "$work/$1"
    "$work/$1/bin/python" -m pip --quiet --disable-pip-version-check install "${@:2}"
}
environment generator "${generator[@]}"
environment typing "${typing[@]}"

protoc() {
    "$work/generator/bin/python" -m grpc_tools.protoc --proto_path="$root/proto" \
        --plugin=protoc-gen-mypy="$work/typing/bin/protoc-gen-mypy" \
        --plugin=protoc-gen-mypy_grpc="$work/typing/bin/protoc-gen-mypy_grpc" "$@"
}
mkdir "$work/out"
(
    cd "$root/proto"
    protoc --python_out="$work/out" --mypy_out=quiet:"$work/out" haversack/v1/*.proto
    # Only the file with the service has a _grpc twin; the others would come out empty.
    protoc --grpc_python_out="$work/out" --mypy_grpc_out=quiet:"$work/out" haversack/v1/service.proto
)

if [[ ${1:-} == --check ]]; then
    diff -r --exclude=__init__.py --exclude=__pycache__ "$work/out/haversack/v1" "$stubs"
else
    rm -f "$stubs"/*_pb2*
    cp "$work/out/haversack/v1/"* "$stubs/"
fi

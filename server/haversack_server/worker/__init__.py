"""The torch side of jobs: a program of its own, ``python -m haversack_server.worker``.

No server code imports it. It speaks the frames of ``haversack_server.verify`` over sockets that it
inherits, never gRPC, and never ``multiprocessing``, which would import its caller's main module.
"""

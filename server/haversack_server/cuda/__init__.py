"""Dense solves on a CUDA device, in a process of its own that the server outlives.

``device`` is what the server hands to dispatch, ``process`` its end of the worker, ``arrays`` what
the two say to each other. The worker is started as ``python -m haversack_server.cuda``, and no
server code imports it; it loads numba, and neither torch nor gRPC.
"""

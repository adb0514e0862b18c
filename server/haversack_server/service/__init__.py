"""The only part of the server that speaks gRPC: servicer, interceptors, process."""

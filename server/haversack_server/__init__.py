"""What runs behind the port: the rooms, the jobs, and the service that opens them to callers."""

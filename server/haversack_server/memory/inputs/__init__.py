"""Adapters: one file per format of a user's own files, all of one shape (``reading.py``)."""

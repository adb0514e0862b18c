"""The generated messages of proto/haversack/v1; `scripts/generate_stubs.sh` writes them.

Only ``haversack.wire`` and the two clients use them here; callers use the nouns.
"""

"""Version of the memory model: it changes whenever an answer to an equal request would."""

MODEL_VERSION = "1"

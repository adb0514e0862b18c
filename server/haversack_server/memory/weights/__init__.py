"""The units of a model: which weights each module has, under which names and in which shapes.

Shapes and names are those of Hugging Face transformers 5.24, checked against its real modules on
the meta device for every family. Knows nothing of configuration files.
"""

from haversack_server.memory.weights.tuned import tuned
from haversack_server.memory.weights.units import with_units

__all__ = ["tuned", "with_units"]

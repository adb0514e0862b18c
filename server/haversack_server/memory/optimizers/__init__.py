"""What an optimizer keeps for the tensors it updates, and what its step takes beside that."""

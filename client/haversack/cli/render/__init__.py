"""Answers as people read them: one module for each command, and the page they draw on."""

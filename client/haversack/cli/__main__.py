"""``python -m haversack.cli``: the command line where the script is not on the path."""

from haversack.cli import main

main()

"""``python -m haversack``: the command line where the script is not on the path."""

from haversack.cli import main

if __name__ == "__main__":
    main()

"""`python -m roster`: the same as the `roster` command."""

from roster.cli import main

if __name__ == "__main__":
    main()

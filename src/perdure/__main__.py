"""`python -m perdure`: the same as the `perdure` command."""

from perdure.cli.main import main

if __name__ == "__main__":
    main()

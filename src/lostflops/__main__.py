"""`python -m lostflops`, the same as `lostflops`."""

from lostflops.cli.main import main

if __name__ == "__main__":
    main()

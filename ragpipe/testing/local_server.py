"""`python -m ragpipe.testing.local_server`: the server of `openai_server.py`, in a process of its own."""

from ragpipe.testing.openai_server import main

if __name__ == "__main__":
    main()

"""`python -m service` is `gossamer`."""

from service.cli import app

if __name__ == "__main__":
    app(prog_name="gossamer")

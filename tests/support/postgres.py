"""A real PostgreSQL server, of the machine's own package, in a folder of its own."""

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from infra.process import LOOPBACK, free_port, spawn, stop_tree, wait_until

PROGRAMS = max(Path("/usr/lib/postgresql").glob("*/bin"), default=None)
"""Where Debian keeps them; None where PostgreSQL is not installed."""


@contextmanager
def running_postgres() -> Iterator[str]:
    """URL of an empty database `overnight` with a password, as SQLAlchemy writes it."""
    assert PROGRAMS is not None
    folder = Path(tempfile.mkdtemp(prefix="overnight-postgres-"))  # root keeps pytest's closed
    if os.getuid() == 0:
        owner = pwd.getpwnam("postgres")
        os.chown(folder, owner.pw_uid, owner.pw_gid)
    data, secret, port = folder / "data", folder / "secret", free_port()
    secret.write_text("a-secret")
    secret.chmod(0o644)
    initdb = [PROGRAMS / "initdb", "-D", data, "-U", "overnight", "--pwfile", secret, "-A", "scram-sha-256"]
    subprocess.run(_as_postgres(*initdb), check=True, capture_output=True, timeout=120)
    server = spawn(
        _as_postgres(PROGRAMS / "postgres", "-D", data, "-h", LOOPBACK, "-p", port, "-k", folder, "-F"),
        folder / "log",
    )
    environment = {**os.environ, "PGPASSWORD": "a-secret"}
    reach = ["-h", LOOPBACK, "-p", str(port), "-U", "overnight"]
    try:
        ready = [str(PROGRAMS / "pg_isready"), *reach]
        wait_until(lambda: subprocess.run(ready, capture_output=True).returncode == 0, 60, "PostgreSQL")
        subprocess.run(
            [str(PROGRAMS / "createdb"), *reach, "overnight"], check=True, env=environment, timeout=60
        )
        yield f"postgresql://overnight:a-secret@{LOOPBACK}:{port}/overnight"
    finally:
        stop_tree(server.pid)
        server.wait()
        shutil.rmtree(folder)


def _as_postgres(*command: object) -> list[str]:
    """It refuses to run as root."""
    words = [str(word) for word in command]
    if os.getuid() != 0:
        return words
    return ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups", *words]

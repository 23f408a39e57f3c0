"""Verdicts that were taken, kept so that a second start of a batch repeats none.

A verdict is kept under a name made of everything that it depends on: the answer and what it needs,
the exercise, the hidden inputs, this version of the course. An answer that has changed is graded
anew.
"""

import contextlib
import hashlib
import json
import os
import secrets
from pathlib import Path, PurePosixPath

from .assignment import Needed

_LIBRARY = Path(__file__).resolve().parents[2]


class VerdictStore:
    """Verdicts that were taken, one file each, and the secret behind the hidden inputs."""

    def __init__(self, out: Path):
        self._folder = out / "verdicts"
        self._folder.mkdir(parents=True, exist_ok=True)
        out.chmod(0o700)
        secret = self._folder / "secret"
        unfinished = self._write_aside(secret, secrets.token_hex(16))
        with contextlib.suppress(FileExistsError):  # by whoever grades another part at this moment
            os.link(unfinished, secret)
        unfinished.unlink()
        self.secret = secret.read_text()
        files = sorted(_LIBRARY.rglob("*.py"))
        self._course = hashlib.sha256(b"\0".join(f.read_bytes() for f in files)).hexdigest()

    def key(self, needed: Needed) -> str:
        pieces = [(PurePosixPath(p.file).name, p.source) for p in needed.program.pieces]
        parts = [self._course, self.secret, needed.program.name, pieces, needed.imports]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]

    def read(self, key: str) -> dict | None:
        try:
            return json.loads((self._folder / f"{key}.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None

    def write(self, key: str, verdict: dict) -> None:
        self._write(self._folder / f"{key}.json", json.dumps(verdict))

    def _write(self, path: Path, text: str) -> None:
        self._write_aside(path, text).rename(path)

    def _write_aside(self, path: Path, text: str) -> Path:
        unfinished = path.with_suffix(f".{secrets.token_hex(4)}")
        try:
            unfinished.write_text(text, encoding="utf-8")
        except OSError:  # a full disk: what is half written is of no use
            unfinished.unlink(missing_ok=True)
            raise
        return unfinished

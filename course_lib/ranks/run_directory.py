"""The folder through which a run's processes talk to the kernel: one per run, gone at its end.

Plain files, because a file outlives the rank that wrote it: what a rank printed, recorded and
raised before it was killed can still be read.

    job              what to run and how (written by the kernel)
    store            where the ranks meet (torch's FileStore)
    events           a named pipe: the launcher reports what is done, as JSON lines
    0/events         another: rank 0's progress, results and exit
    0/arguments      those that are rank 0's alone, if there are any (written by the kernel)
    0/out            what rank 0 printed, Python and native code alike
    0/journal        what rank 0 did (course_lib.observe)
    0/warnings       what torch warned of there, one a line
    0/result         the pickled return value, or
    0/failure        the exception, as JSON
    0/stack          where rank 0 was when it was asked, or crashed (faulthandler)
"""

import datetime
import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import torch.distributed as dist


class RunDir:
    """Paths and the event pipes of one run."""

    _places: tuple[Path, ...] = ()
    _store: Path | None = None

    def __init__(self, path: Path):
        # As this process spells it: the kernel may not know UTF-8, and the ranks do.
        self.path = Path(os.fsdecode(os.fsencode(path)))

    @classmethod
    def use_places(cls, folder: str, count: int) -> None:
        """From now on ranks have their own folders in folder/0, folder/1, ... in turn."""
        cls._places = tuple(Path(folder, f"{number}") for number in range(count))

    @classmethod
    def use_store(cls, file: Path) -> None:
        """From now on this process meets the other ranks at this file."""
        cls._store = file

    @classmethod
    def create(cls, world_size: int) -> "RunDir":
        run = cls(Path(tempfile.mkdtemp(prefix="ranks-")))
        os.mkfifo(run.events)
        for rank in range(world_size):
            run.own(rank).mkdir()
            os.mkfifo(run.of(rank, "events"))
        return run

    @property
    def job(self) -> Path:
        return self.path / "job"

    @property
    def events(self) -> Path:
        return self.path / "events"

    def store(self, timeout: datetime.timedelta) -> dist.Store:
        """The rendezvous of this run.

        A file and not a TCPStore: nothing to connect to, no port, and 64 ranks meet faster.
        """
        store = dist.FileStore(str(self.store_file))
        store.set_timeout(timeout)
        return store

    @property
    def store_file(self) -> Path:
        return self._store or self.path / "store"

    def own(self, rank: int) -> Path:
        """The folder that one rank writes to."""
        if self._places:
            return self._places[rank % len(self._places)] / f"{self.path.name}-{rank}"
        return self.path / f"{rank}"

    def of(self, rank: int, what: str) -> Path:
        return self.own(rank) / what

    def deliver(self, rank: int, what: str, payload: bytes) -> None:
        """Write a rank's file so that a reader sees all of it or nothing."""
        unfinished = self.of(rank, what + ".part")
        unfinished.write_bytes(payload)
        unfinished.rename(self.of(rank, what))

    def tell(self, rank: int | None = None, **event: Any) -> None:
        """Send an event, of a rank or of all, to the kernel; nothing when the kernel has gone."""
        events = self.events if rank is None else self.of(rank, "events")
        try:
            pipe = os.open(events, os.O_WRONLY | os.O_NONBLOCK)
        except OSError:
            return
        try:
            # One write below PIPE_BUF is atomic, so the lines of two processes never mix.
            os.set_blocking(pipe, True)
            os.write(pipe, json.dumps(event).encode() + b"\n")
        except OSError:
            pass
        finally:
            os.close(pipe)

    def remove(self) -> None:
        for place in self._places:
            for folder in place.glob(f"{self.path.name}-*"):
                shutil.rmtree(folder, ignore_errors=True)
        shutil.rmtree(self.path, ignore_errors=True)

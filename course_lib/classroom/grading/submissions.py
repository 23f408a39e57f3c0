"""What was handed in: every student's notebooks, in folders or zip files, as bytes and never run.

    submissions/alice/02_ring_all_reduce.ipynb      the folder's name is the student
    submissions/bob/week 3/final/ring (2).ipynb     at any depth, by any name
    submissions/carol.zip                           as a folder of that name; .tar.gz as well
    submissions/dan_02_ring_all_reduce.ipynb        a single notebook

Nothing is written to the disk, links are not followed, and sizes are looked at before reading.
"""

import datetime
import io
import re
import tarfile
import unicodedata
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from .extract_answers import is_notebook

LARGEST = 64 * 2**20  # bytes of one notebook
_MOST_FILES = 2000  # of one student
_DEEPEST = 3  # zip files in zip files
_SKIPPED = {".ipynb_checkpoints", "__MACOSX", "__pycache__", "Thumbs.db", "desktop.ini"}
_TELLING = (".html", ".pdf", ".gz", ".bz2", ".xz", ".rar", ".7z", ".docx", ".doc", ".odt", ".md")
_ARCHIVES = (".zip", ".tar", ".tgz", ".tar.gz", ".tar.bz2", ".tar.xz")
# What browsers and mail programs make of ".ipynb"; looked into, and taken if it is a notebook.
_DISGUISES = (".json", ".txt", ".ipynb_")


@dataclass(frozen=True)
class Found:
    """A notebook. `path` is where it lay, below the student's name; `changed`: to sort by age.

    script: it is Python code and no notebook.
    """

    path: str
    content: bytes
    changed: float = 0.0
    script: bool = False

    @property
    def stem(self) -> str:
        return PurePosixPath(self.path).stem


@dataclass
class Submission:
    """All that a student handed in: notebooks, and (path, reason) of what cannot be one."""

    student: str
    notebooks: list[Found] = field(default_factory=list)
    odd: list[tuple[str, str]] = field(default_factory=list)


def collect(folder: Path, lessons: list[str]) -> list[Submission]:
    """Submissions by student. Raises `ValueError` if there is nothing at `folder`."""
    if folder.suffix.lower() == ".zip" and folder.is_file():
        with zipfile.ZipFile(folder) as archive:
            entries: Iterable[tuple[str, Iterable[Item]]] = _tops(_unzipped(archive, "", 0))
    elif folder.is_dir():
        entries = ((path.name, _walked(path)) for path in sorted(folder.iterdir()))
    else:
        raise ValueError(f"{folder} is neither a folder nor a zip file")
    submissions: dict[str, Submission] = {}
    for name, items in entries:
        if _hidden(name):
            continue
        student = _student(name, lessons)
        submission = submissions.setdefault(student, Submission(student))
        for item in items:
            if isinstance(item, Found):
                submission.notebooks.append(item)
            else:
                submission.odd.append(item)
    return [submissions[name] for name in sorted(submissions)]


def _student(name: str, lessons: list[str]) -> str:
    """The student's name: that of the folder, or of the file without the lesson's name."""
    name = unicodedata.normalize("NFC", name)  # as typed on a Mac and elsewhere
    endings = (".ipynb", *_ARCHIVES, ".py", ".ipynb.json", ".ipynb.txt")
    ending = max((e for e in endings if name.lower().endswith(e)), key=len, default="")
    stem = name.removesuffix(name[len(name) - len(ending) :] if ending else "").strip()
    for lesson in lessons:
        shorter = re.sub(re.escape(lesson), "", stem, flags=re.IGNORECASE).strip(" _-.")
        if shorter and shorter != stem:
            return shorter
    return stem or name


Item = Found | tuple[str, str]


def _walked(path: Path) -> Iterator[Item]:
    """The notebooks in a folder or file, zip files opened."""
    count = 0
    for file in [path, *sorted(path.rglob("*"))] if not path.is_symlink() else [path]:
        shown = str(file.relative_to(path.parent))
        if any(map(_hidden, PurePosixPath(shown).parts)):
            continue
        if file.is_symlink():
            yield shown, "is a link, and links are not followed"
        elif file.is_file():
            count += 1
            if count > _MOST_FILES:
                yield shown, f"comes after {_MOST_FILES} other files, and is not looked at"
                return
            yield from _opened(shown, file.stat().st_size, file.read_bytes, file.stat().st_mtime, 0)


def _opened(path: str, size: int, read, changed: float, depth: int) -> Iterator[Item]:
    suffix = PurePosixPath(path).suffix.lower()
    packed = path.lower().endswith(_ARCHIVES)
    disguised = suffix.startswith(_DISGUISES) or ".ipynb" in path.lower()
    if not (suffix in (".ipynb", ".py") or packed or disguised):
        if suffix in _TELLING or "/" not in path:
            yield path, "is no notebook (.ipynb), folder or archive"
        return
    if size > LARGEST:
        yield path, f"has {size >> 20} MiB; at most {LARGEST >> 20} are read: clear its outputs"
        return
    try:
        content = read()
        if suffix != ".ipynb" and not packed and is_notebook(content):
            yield Found(path, content, changed)
            yield path, "is a notebook, and not called like one"
        elif suffix in (".ipynb", ".py"):
            yield Found(path, content, changed, suffix == ".py")
        elif not packed:
            if "/" not in path or ".ipynb" in path.lower():
                yield path, "is no notebook (.ipynb), folder or archive"
        elif depth >= _DEEPEST:
            yield path, f"is an archive inside {_DEEPEST} others"
        elif suffix != ".zip":
            with tarfile.open(fileobj=io.BytesIO(content)) as tar:
                yield from _untarred(tar, f"{path}/", depth + 1)
        else:
            with zipfile.ZipFile(io.BytesIO(content)) as archive:
                yield from _unzipped(archive, f"{path}/", depth + 1)
    except (OSError, RuntimeError, NotImplementedError, zipfile.BadZipFile, EOFError) as problem:
        yield path, f"cannot be opened: {problem}"
    except Exception as problem:  # zlib and others have errors of their own
        yield path, f"cannot be opened: {type(problem).__name__}: {problem}"


def _unzipped(archive: zipfile.ZipFile, prefix: str, depth: int) -> Iterator[Item]:
    budget = 8 * LARGEST
    for count, entry in enumerate(archive.infolist()):
        path = prefix + entry.filename.replace("\\", "/")
        if entry.is_dir() or any(map(_hidden, PurePosixPath(path).parts)):
            continue
        budget -= entry.file_size if entry.file_size <= LARGEST else 0
        if count > _MOST_FILES or budget < 0:
            yield path, "comes after too many or too large files of its zip file, and is not read"
            return
        changed = _changed(entry)
        yield from _opened(
            path, entry.file_size, lambda e=entry: _exactly(archive, e), changed, depth
        )


def _untarred(archive: tarfile.TarFile, prefix: str, depth: int) -> Iterator[Item]:
    """Regular files only; what is compressed is read no further than a zip file would be."""
    budget = 8 * LARGEST
    for count, entry in enumerate(archive):
        path = prefix + entry.name
        if not entry.isfile() or any(map(_hidden, PurePosixPath(path).parts)):
            continue
        budget -= entry.size
        if count > _MOST_FILES or budget < 0:
            yield path, "comes after too many or too large files of its archive, and is not read"
            return

        def read(entry: tarfile.TarInfo = entry) -> bytes:
            file = archive.extractfile(entry)
            return file.read(LARGEST + 1) if file else b""

        yield from _opened(path, entry.size, read, entry.mtime, depth)


def _changed(entry: zipfile.ZipInfo) -> float:
    try:
        return datetime.datetime(*entry.date_time).timestamp()
    except (ValueError, OverflowError):  # month 0 is usual in a zip file without dates
        return 0.0


def _exactly(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> bytes:
    """The entry's bytes; a zip file may lie about its sizes."""
    with archive.open(entry) as file:
        content = file.read(LARGEST + 1)
    if len(content) > LARGEST:
        raise OSError(f"it unpacks to more than {LARGEST >> 20} MiB")
    return content


def _tops(items: Iterator[Item]) -> Iterator[tuple[str, Iterable[Item]]]:
    """Items of one large zip file by the first part of their path."""
    tops: dict[str, list[Item]] = {}
    for item in items:
        path = item.path if isinstance(item, Found) else item[0]
        tops.setdefault(PurePosixPath(path).parts[0], []).append(item)
    yield from tops.items()


def _hidden(name: str) -> bool:
    return name in _SKIPPED or (name.startswith(".") and name not in (".", ".."))

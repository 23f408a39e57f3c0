"""The names of the course's packages that the sandbox treats in its own way.

They are derived where they can be. Of the techniques, which the checks never import, only the name
is known here: a test sees to it that it is the package's.
"""

import functools
from pathlib import PurePosixPath

from course_lib import observe

COURSE, CHECKS = __name__.split(".")[0], __name__.rsplit(".", 2)[0]
OBSERVE = observe.__name__
TECHNIQUES = f"{COURSE}.techniques"


@functools.lru_cache(maxsize=4096)
def technique_file(file: str) -> str | None:
    """A file of the techniques, in whichever copy of the course, from the course's folder on.

    None if `file` is none of them.
    """
    parts = PurePosixPath(file.replace("\\", "/")).parts
    package = tuple(TECHNIQUES.split("."))
    for start in range(len(parts) - len(package)):
        if parts[start : start + len(package)] == package:
            return "/" + "/".join(parts[start:])
    return None

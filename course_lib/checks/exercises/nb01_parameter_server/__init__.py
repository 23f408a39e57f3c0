"""Notebook 01: parameter servers, and what asynchronous training costs."""

from course_lib.checks.exercises.nb01_parameter_server.asynchronous import ASYNCHRONOUS_SERVER
from course_lib.checks.exercises.nb01_parameter_server.bounding import RELEASED
from course_lib.checks.exercises.nb01_parameter_server.filtering import SIGNIFICANT_CHANGES
from course_lib.checks.exercises.nb01_parameter_server.link_bytes import BYTES_SENT
from course_lib.checks.exercises.nb01_parameter_server.placing import PLACE_BY_BYTES, RING_OWNERS
from course_lib.checks.exercises.nb01_parameter_server.push_pull import PUSH_AND_PULL
from course_lib.checks.exercises.nb01_parameter_server.training import TRAIN_SYNCHRONOUSLY

EXERCISES = (
    PUSH_AND_PULL,
    TRAIN_SYNCHRONOUSLY,
    BYTES_SENT,
    PLACE_BY_BYTES,
    RING_OWNERS,
    ASYNCHRONOUS_SERVER,
    RELEASED,
    SIGNIFICANT_CHANGES,
)

"""Grade a folder of submissions: find notebooks, take the answers out, run them apart, report."""

from course_lib.classroom.grading.batch import grade

__all__ = ["grade"]

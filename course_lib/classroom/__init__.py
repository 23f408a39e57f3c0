"""One source a lesson becomes the student's notebook with holes and the executed solution."""

from course_lib.classroom.course import Course, Problem
from course_lib.classroom.lesson import Cell, Lesson, LessonError, read_lesson

__all__ = ["Cell", "Course", "Lesson", "LessonError", "Problem", "read_lesson"]

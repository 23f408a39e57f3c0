"""Grade a folder of submissions: take the answers out, run them in a sandbox, report.

In the order of a submission's life:

    submissions      find the students and their files, whatever platform packed them
    extract_answers  read the cells of a notebook, and take the answers out of them
    newest_version   which notebook counts for which lesson
    assignment       put an answer into the untouched lesson: the program that is run
    settings, batch  run all answers of all students, several at a time
    verdict_cache    keep each verdict, so that a second start repeats none
    points           what each student has, partial credit, and what late days cost
    history          an answer's earlier verdicts
    similarity       who has the same answers
    reports          what teachers and students read
    score_tables     CSV of the scores, and files for Moodle, Canvas and Gradescope
"""

from .batch import grade

__all__ = ["grade"]

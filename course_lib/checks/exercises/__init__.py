"""The exercises: a folder for each notebook, and in it a file for each exercise.

A file has the name of the function that it checks, and defines `EXERCISE`; it is found by itself.
What several exercises share is in files that begin with an underscore.
"""

"""How many small changes to a right answer does its check notice? `make mutants` counts them.

To read in this order:

    changes     the small changes: a statement left out, + for -, a wait dropped, ...
    answers     a lesson's own answer as a program, whole or with one change
    equivalent  changes after which the answer is as right as before, each with its reason
    score       all mutants put to the checks, in parallel, and what has been tried before kept
"""

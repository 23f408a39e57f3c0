"""Stage one of a check in a sandbox, for answers that count.

An answer travels there as text (`program`) into a sandbox (`isolation`, `fork_server`). In it one
process starts ranks and collects what they leave (`sandboxed_run`), and each rank, which alone runs
the answer, is shut off from the others but for the network (`rank_confinement`, `seccomp`). What
happened comes back as plain data in a format that cannot run anything (`transport`). The verdict is
taken here, where the answer never ran (`grading`).
"""

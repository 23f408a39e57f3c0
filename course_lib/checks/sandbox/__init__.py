"""Stage one of a check in a sandbox, for answers that count.

An answer travels there as text (`program`), runs in a sandbox (`isolation`, `fork_server`,
`sandboxed_run`), and what happened comes back as plain data in a format that cannot run anything
(`transport`). The verdict is taken here, where the answer never ran (`grading`).
"""

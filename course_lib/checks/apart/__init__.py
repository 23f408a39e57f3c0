"""Stage one of a check in a process that is locked in, for answers that count.

An answer travels there as text (`program`), runs behind walls (`isolation`, `nursery`, `inmate`),
and what happened comes back as plain data in a format that cannot run anything (`transport`). The
verdict is taken here, where the answer never ran (`grading`).
"""

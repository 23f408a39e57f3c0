"""Stage one of a check in a sandbox, for answers that count.

An answer travels there as text (`answer_program`, `slicing`) into a sandbox (`isolation`,
`resource_limits`, `fork_server`), where the library is a copy without answers (`library_copy`,
`names`). In it one process starts ranks and collects what they leave (`sandboxed_run`), and each
rank, which alone runs the answer, is shut off from the others but for the network
(`rank_confinement`, `seccomp`), where what crosses is counted (`loopback_traffic`). What happened
comes back as plain data in a format that cannot run anything (`safe_serialization`). The verdict is
taken here, where the answer never ran (`grader`).
"""

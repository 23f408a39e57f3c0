"""The techniques themselves: plain torch, a package for each, in the order of the lessons.

    parameter_server            some ranks keep the parameters, all others compute      01
    collectives                 all-reduce from sends and receives; tensor fusion       02
    data_parallel               a replica per rank, gradients averaged                  03
    tensor_parallel             every layer shared by several ranks                     04
    schedules                   who runs what, and when: a pipeline as plain data       05
    pipeline                    a run of layers per rank, microbatches in flight        05
    zero                        optimizer state, gradients and parameters sharded       06
    mixed_precision             16 bits to compute in, master weights in 32             07
    offload                     the optimizer on the host                               07
    activation_checkpointing    keep less for backward, compute it again                07
    mesh                        which rank stands where on several axes                 08
    three_d                     data, context, tensor and pipeline parallelism at once  08
    context_parallel            the tokens of one sequence on several ranks             09
    expert_parallel             mixtures of experts, spread over the data axis          10
    make_optimizer              how a technique is told which optimizer to use
    checkpoints                 saving state, and loading it on any other mesh          08

Each package begins with its reading order and with what it needs of its neighbours. Files of one
package import each other relatively, and neighbours by their full names. So to take a technique
elsewhere, copy its folder and those neighbours' with their paths (`course_lib/techniques/zero`):
nothing above them is needed, and nothing but torch.

Nothing is imported here. `from course_lib.techniques import schedules` loads that package only, and
`schedules` and `mesh` do not load torch. `zero1`, `zero2` and `zero3` are names for the stages in
`zero`.
"""

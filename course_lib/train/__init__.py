"""Training off the laptop: one program, started by torchrun on one node or on many.

    torchrun --nproc-per-node 8 -m course_lib.train --pipeline 2 --tensor 2 --zero 1
    torchrun --nproc-per-node 4 -m course_lib.train --experts 8 --expert-parallel 2
    torchrun --nproc-per-node 8 -m course_lib.train --context 4 --data 2

`options` is what can be asked for, `loop` what every rank does; what survives is in
`course_lib.techniques.checkpoints.resumable`. `parameter_server_experiment` trains with a
parameter server, for lesson 01, and `server_and_ddp` with one and with PyTorch's DDP;
`overlap_experiment` is a step that is watched, for lesson 03.
"""

"""Every stage of ZeRO equal to one process with the whole batch, step by step."""

import pytest

from course_lib.models import NASTY_MODELS
from course_lib.ranks import collect
from course_lib.techniques.zero1 import Zero1
from course_lib.techniques.zero2 import Zero2
from course_lib.techniques.zero3 import Zero3
from tests.techniques.zero_cases import OPTIMIZERS, differences, on_ranks, one_process

SMALL = {"bucket_bytes": 160}  # several buckets, even in these models
STAGES = {
    "1": (Zero1, {}),
    "2": (Zero2, SMALL),
    "3": (Zero3, {}),
}
NAMES = list(NASTY_MODELS)

CASES = [(n, "adamw", n % 2 == 1) for n in (1, 2, 3, 4, 5)] + [(3, "sgd", True)]


@pytest.mark.parametrize(("world_size", "optimizer", "grouped"), CASES)
def test_equals_one_process(world_size: int, optimizer: str, grouped: bool) -> None:
    make = OPTIMIZERS[optimizer]

    def all_stages():
        return {
            stage: on_ranks(kind, NAMES, make, grouped=grouped, **options)
            for stage, (kind, options) in STAGES.items()
        }

    oracle = {n: list(one_process(NASTY_MODELS[n](0), make, grouped=grouped)) for n in NAMES}
    for found in collect(all_stages, world_size, observe=False, timeout=60):
        for stage, models in found.items():
            for name, steps in models.items():
                worst = max(differences(steps, oracle[name]))
                assert worst[0] < 1e-10, (stage, name, worst)

"""Known answers to layer_traffic."""

from course_lib.checks.known_answers import right, wrong


@right
def layer_traffic(b, s, h, t, element_size):
    tensor = b * s * h * element_size
    return sum(2 * (t - 1) * tensor / t for _ in ("g", "g", "f", "f"))


@wrong(says="(t-1)/t is missing")
def as_if_sent_to_itself(b, s, h, t, element_size):
    return 8 * b * s * h * element_size


@wrong(says="count forward and backward")
def forward_alone(b, s, h, t, element_size):
    return 4 * b * s * h * (t - 1) / t * element_size


@wrong(says="these are elements")
def in_elements(b, s, h, t, element_size):
    return 8 * b * s * h * (t - 1) / t


@wrong(says="a ring sends 2(t-1)/t of its tensor")
def four_tensors(b, s, h, t, element_size):
    return 4 * b * s * h * element_size


@wrong(says="asked is what each one sends")
def of_all_ranks(b, s, h, t, element_size):
    return 8 * b * s * h * (t - 1) * element_size


@wrong(says="not 1/t of it")
def of_a_part(b, s, h, t, element_size):
    return 8 * b * s * h * (t - 1) / t**2 * element_size

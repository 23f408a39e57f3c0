"""Networks for images that scaling was measured on, layer by layer: parameters and operations.

Parameters are exact and include biases and normalisation; operations are multiply-adds of one
forward pass of an image, of convolutions and linear layers only.
"""

from typing import NamedTuple

from .data_parallel import Layer


class Part(NamedTuple):
    """A layer or block: its parameters, and its multiply-adds for one image."""

    name: str
    parameters: int
    operations: int


def vgg16() -> list[Part]:
    """Simonyan & Zisserman 2014, configuration D; images of 224 x 224. 138,357,544 parameters."""
    parts, channels, size = [], 3, 224
    for number, widths in enumerate(((64, 64), (128, 128), (256,) * 3, (512,) * 3, (512,) * 3), 1):
        for index, width in enumerate(widths, 1):
            weights = 9 * channels * width
            parts.append(Part(f"conv{number}_{index}", weights + width, weights * size**2))
            channels = width
        size //= 2  # max pooling
    for name, width, outputs in (("fc6", 512 * 7 * 7, 4096), ("fc7", 4096, 4096)):
        parts.append(Part(name, (width + 1) * outputs, width * outputs))
    return [*parts, Part("fc8", 4097 * 1000, 4096 * 1000)]


def resnet101() -> list[Part]:
    """He et al. 2015, Table 1; images of 224 x 224. 44,549,160 parameters."""
    parts = [Part("conv1", 9408 + 128, 9408 * 112**2)]
    channels, size = 64, 56
    for number, (blocks, width) in enumerate(((3, 64), (4, 128), (23, 256), (3, 512)), 2):
        for block in range(blocks):
            entry = size  # the stride is in the second convolution, as in most implementations
            if block == 0 and number > 2:
                size //= 2
            first, middle, last = channels * width, 9 * width**2, 4 * width**2
            short = channels * 4 * width if block == 0 else 0
            norms = 2 * (width + width + 4 * width + (4 * width if block == 0 else 0))
            operations = first * entry**2 + (middle + last + short) * size**2
            parameters = first + middle + last + short + norms
            parts.append(Part(f"conv{number}_{block + 1}", parameters, operations))
            channels = 4 * width
    return [*parts, Part("fc", 2049 * 1000, 2048 * 1000)]


def inception_v3() -> list[Part]:
    """Szegedy et al. 2015: 23,834,568 parameters and 5.7 billion operations, in 22 equal parts.

    How they are spread over the modules is left out.
    """
    parameters, operations, parts = 23_834_568, 5_700_000_000, 22
    return [Part(f"part {i}", parameters // parts, operations // parts) for i in range(parts)]


def layers(parts: list[Part], seconds: float, bytes_per_parameter: int = 4) -> list[Layer]:
    """As layers of a step that computes for `seconds` in all, shared out by operations.

    A third of it is the forward pass: backward has two products for each one of forward.
    """
    unit = seconds / sum(part.operations for part in parts)
    return [
        Layer(
            part.name,
            part.operations * unit / 3,
            part.operations * unit * 2 / 3,
            part.parameters * bytes_per_parameter,
        )
        for part in parts
    ]

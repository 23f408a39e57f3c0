"""Devices and links by name, with the numbers of their makers.

Bandwidths are bytes per second in one direction: a link that is sold as 600 GB/s "bidirectional"
carries 300 each way. Rates are peaks without sparsity; memory is in decimal GB, as sold.

Latencies of links between GPUs are what NCCL reckons with for one step of a ring (src/graph/
tuning.cc, hwLat, protocol Simple): NVLink 3.4, PCIe 5.7, InfiniBand 14 microseconds. Ethernet's 50
is an assumption for messages through the kernel's TCP.

What is reached of a peak, where it was measured:

    matrix products      A100 271.2, H100 and H200 794.5 TFLOP/s: Bekman, "Machine Learning
                         Engineering", Maximum Achievable Matmul FLOPS; the V100, of which nobody
                         tells, is taken as the A100
    fused attention      50 to 73 % on the A100, so 60: Dao, "FlashAttention-2", 2023; 35 % on the
                         H100: Shah et al., "FlashAttention-3", 2024
    rings over NVLink    20.0 of a link's 25 GB/s up to the A100, 20.6 on the H100: NCCL,
                         src/graph/topo.h

Only the planner counts with these. Costs and replays compare algorithms, by the makers' numbers.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

GB, TERA, MICRO = 10**9, 10**12, 1e-6


@dataclass(frozen=True)
class Device:
    """What computes: memory in bytes, rates per second."""

    name: str
    memory: int
    memory_bandwidth: float
    half_flops: float  # 16-bit matrix products with 32-bit sums: bf16, fp16 on V100
    single_flops: float  # fp32, not TF32
    source: str = ""
    matmul_share: float = 1.0  # of `half_flops`: what the best matrix product reaches
    attention_share: float = 1.0  # of `half_flops`: what a fused attention reaches

    def __post_init__(self) -> None:
        for field in ("memory", "memory_bandwidth", "half_flops", "single_flops"):
            _positive(f"{self.name}: {field}", getattr(self, field))
        _positive(f"{self.name}: matmul_share", self.matmul_share)
        _positive(f"{self.name}: attention_share", self.attention_share)

    @property
    def attention_flops(self) -> float:
        """16-bit operations per second of a fused attention."""
        return self.attention_share * self.half_flops

    @property
    def matmul_flops(self) -> float:
        """16-bit operations per second of the best matrix product."""
        return self.matmul_share * self.half_flops


@dataclass(frozen=True)
class Link:
    """What a message crosses: alpha + nbytes * beta seconds.

    `shared` says that all messages on this kind of link queue for one and the same wire, in both
    directions, as ranks on one laptop do for its cores. Otherwise each pair of ranks has its own
    wire, and each direction too.
    """

    name: str
    latency: float
    bandwidth: float
    shared: bool = False
    source: str = ""
    ring_share: float = 1.0  # of `bandwidth`: what the rings of a collective reach

    def __post_init__(self) -> None:
        if not 0 <= self.latency < math.inf:
            raise ValueError(f"{self.name}: latency = {self.latency} must be 0 or more seconds")
        _positive(f"{self.name}: bandwidth", self.bandwidth)
        _positive(f"{self.name}: ring_share", self.ring_share)

    @property
    def ring_bandwidth(self) -> float:
        """Bytes per second that the rings of a collective carry."""
        return self.ring_share * self.bandwidth

    @property
    def alpha(self) -> float:
        """Seconds until the first byte arrives."""
        return self.latency

    @property
    def beta(self) -> float:
        """Seconds per byte."""
        return 1 / self.bandwidth

    def seconds(self, nbytes: float) -> float:
        """One message (Hockney's model)."""
        return self.alpha + nbytes * self.beta


def fit_link(
    name: str, nbytes: Sequence[float], seconds: Sequence[float], shared: bool = False
) -> Link:
    """The link that explains measured messages: least squares of the relative error.

    Relative, so that a message of 1 kB counts as much as one of 100 MB. Measure both directions at
    once if they are used at once: on a laptop they share the cores.
    """
    if len(nbytes) != len(seconds) or len(set(nbytes)) < 2:
        raise ValueError(
            f"{len(nbytes)} sizes and {len(seconds)} times: a fit needs as many of one as of the"
            " other, and two different sizes"
        )
    for size, time in zip(nbytes, seconds, strict=True):
        _positive(f"the time of a message of {size} bytes", time)
    weights = [1 / time**2 for time in seconds]
    total = sum(weights)
    size = sum(w * n for w, n in zip(weights, nbytes, strict=True)) / total
    time = sum(w * t for w, t in zip(weights, seconds, strict=True)) / total
    spread = sum(w * (n - size) ** 2 for w, n in zip(weights, nbytes, strict=True))
    together = sum(
        w * (n - size) * (t - time) for w, n, t in zip(weights, nbytes, seconds, strict=True)
    )
    if together <= 0:
        raise ValueError(f"{name}: longer messages took no longer, so no bandwidth can be fitted")
    beta = together / spread
    return Link(name, max(0.0, time - beta * size), 1 / beta, shared, "fitted to a measurement")


def _positive(what: str, value: float) -> None:
    if not 0 < value < math.inf:
        raise ValueError(f"{what} = {value} must be more than 0")


_A100, _H100 = 271.2 / 312, 794.5 / 989  # matrix products, measured against sold
V100_32GB = Device(
    "V100 SXM2 32 GB",
    32 * GB,
    900 * GB,
    125 * TERA,
    15.7 * TERA,
    "NVIDIA V100 data sheet, 2020",
    _A100,
    0.60,
)
A100_40GB = Device(
    "A100 SXM 40 GB",
    40 * GB,
    1555 * GB,
    312 * TERA,
    19.5 * TERA,
    "NVIDIA A100 data sheet, 2021",
    _A100,
    0.60,
)
A100_80GB = replace(A100_40GB, name="A100 SXM 80 GB", memory=80 * GB, memory_bandwidth=2039 * GB)
H100 = Device(
    "H100 SXM 80 GB",
    80 * GB,
    3350 * GB,
    989 * TERA,
    67 * TERA,
    "NVIDIA H100 data sheet, 2023",
    _H100,
    0.35,
)
H200 = replace(
    H100,
    name="H200 SXM 141 GB",
    memory=141 * GB,
    memory_bandwidth=4800 * GB,
    source="NVIDIA H200 data sheet, 2024",
)
DEVICES = {device.name: device for device in (V100_32GB, A100_40GB, A100_80GB, H100, H200)}

_NVLINK, _PCIE, _INFINIBAND, _ETHERNET = 3.4 * MICRO, 5.7 * MICRO, 14 * MICRO, 50 * MICRO
LINKS = {
    link.name: link
    for link in (
        Link("NVLink 2", _NVLINK, 150 * GB, False, "6 x 25 GB/s, NVIDIA V100 data sheet", 20 / 25),
        Link("NVLink 3", _NVLINK, 300 * GB, False, "12 x 25 GB/s, NVIDIA A100 data sheet", 20 / 25),
        Link(
            "NVLink 4", _NVLINK, 450 * GB, False, "18 x 25 GB/s, NVIDIA H100 data sheet", 20.6 / 25
        ),
        Link("PCIe 3 x16", _PCIE, 15.75 * GB, source="16 x 8 GT/s, 128b/130b coding"),
        Link("PCIe 4 x16", _PCIE, 31.5 * GB, source="16 x 16 GT/s, 128b/130b coding"),
        Link("PCIe 5 x16", _PCIE, 63 * GB, source="16 x 32 GT/s, 128b/130b coding"),
        Link("InfiniBand EDR", _INFINIBAND, 12.5 * GB, source="100 Gbit/s"),
        Link("InfiniBand HDR", _INFINIBAND, 25 * GB, source="200 Gbit/s"),
        Link("InfiniBand NDR", _INFINIBAND, 50 * GB, source="400 Gbit/s"),
        Link("10 GbE", _ETHERNET, 1.25 * GB, source="10 Gbit/s"),
        Link("25 GbE", _ETHERNET, 3.125 * GB, source="25 Gbit/s"),
        Link("100 GbE", _ETHERNET, 12.5 * GB, source="100 Gbit/s"),
    )
}

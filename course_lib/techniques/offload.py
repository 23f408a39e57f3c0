"""ZeRO-Offload: the optimizer's state and its step move to the host's memory.

    device    parameters (2 bytes)   forward, backward
                 gradients down, as backward makes them  v     ^  parameters up, as they are stepped
    host      masters, momentum, variance (12 bytes)    step of the optimizer

Of 16 bytes per parameter 2 stay on the device. Any other cut of the work moves more or computes
more on the slow side: this one sends 2 bytes per parameter down and 2 up in a step, 4 in all. Both
directions are hidden behind work: gradients travel while backward goes on, and parameters of one
bucket travel while the host steps the next.

Ren et al., "ZeRO-Offload: Democratizing Billion-Scale Model Training", USENIX ATC 2021, sections
3 and 4.

Needs of its neighbours: collectives (fusion), make_optimizer.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.profiler import record_function

from .collectives.fusion import pack
from .make_optimizer import MakeOptimizer

BUCKET_BYTES = 4 * 2**20


class Bus:
    """Copies between device and host, on a stream of their own, counted.

    down, up: bytes so far, from the device to the host and back. If the device is the host itself,
    the copies are made all the same, and wait for nothing.
    """

    def __init__(self, device: torch.device) -> None:
        self.module = torch.get_device_module(device)
        self.stream = self.module.Stream()
        self.real = device.type != "cpu"
        self.down = self.up = 0

    def buffer(self, like: torch.Tensor) -> torch.Tensor:
        """Memory on the host that the device can copy to and from by itself."""
        return torch.empty(like.shape, dtype=like.dtype, pin_memory=self.real)

    def fetch(self, target: torch.Tensor, source: torch.Tensor) -> Any:
        """Start to copy `source` down to `target`; returns an event that can be waited for."""
        self.down += source.nbytes
        self._start(target, source)
        if self.real:
            source.record_stream(self.stream)  # its memory stays taken until it has been read
        return self.stream.record_event()

    def put(self, target: torch.Tensor, source: torch.Tensor) -> None:
        """Start to copy `source` up to `target`."""
        self.up += source.nbytes
        self._start(target, source)

    def join(self) -> None:
        """Let the device's next work wait for what was started."""
        self.module.current_stream().wait_stream(self.stream)

    def _start(self, target: torch.Tensor, source: torch.Tensor) -> None:
        self.stream.wait_stream(self.module.current_stream())
        with self.module.stream(self.stream):
            target.copy_(source, non_blocking=self.real)


class OffloadedOptimizer:
    """An optimizer over `parameters` that lives on the host, in fp32.

    groups: parameter groups as torch's optimizers take them. They may be a model's parameters, or
        pieces under ZeRO: `Zero2(model, lambda groups: OffloadedOptimizer(groups, adamw))`.
    make_optimizer: builds the host's optimizer from groups of masters, once for each bucket.
    bucket_bytes: of the parameters that are stepped and sent up together.

    Gradients that backward makes leave at once, and their memory is free; several backward passes
    add up on the host. A gradient set in another way leaves in `step`.
    """

    def __init__(
        self,
        groups: Sequence[Mapping[str, Any]],
        make_optimizer: MakeOptimizer,
        bucket_bytes: int = BUCKET_BYTES,
    ) -> None:
        parameters = [p for group in groups for p in group["params"]]
        self.bus = Bus(parameters[0].device if parameters else torch.device("cpu"))
        self.buffers = {p: self.bus.buffer(p) for p in parameters}
        self.masters = {p: nn.Parameter(p.detach().to("cpu", torch.float32)) for p in parameters}
        for parameter, master in self.masters.items():
            if parameter.is_cpu and parameter.dtype == master.dtype:
                master.data = master.detach().clone()
        self.buckets = list(pack(reversed(parameters), bucket_bytes))
        self.optimizers = [make_optimizer(self._part(groups, set(run))) for run in self.buckets]
        self.arriving: dict[nn.Parameter, Any] = {}
        for parameter in parameters:
            parameter.register_post_accumulate_grad_hook(self._leave)

    def _part(
        self, groups: Sequence[Mapping[str, Any]], run: set[nn.Parameter]
    ) -> list[dict[str, Any]]:
        parts = [
            {**group, "params": [self.masters[p] for p in group["params"] if p in run]}
            for group in groups
        ]
        return [part for part in parts if part["params"]]

    @torch.no_grad()
    def _leave(self, parameter: nn.Parameter) -> None:
        """Start to send a gradient to the host, and let go of it here."""
        self._arrive(parameter)  # of an earlier pass: its buffer is needed
        gradient, parameter.grad = parameter.grad, None
        assert gradient is not None
        self.arriving[parameter] = self.bus.fetch(self.buffers[parameter], gradient)

    def _arrive(self, parameter: nn.Parameter) -> None:
        """Wait for a gradient, and add it to the master's."""
        if parameter in self.arriving:
            event = self.arriving.pop(parameter)
            if self.bus.real:
                event.synchronize()
            master = self.masters[parameter]
            gradient = self.buffers[parameter].to(master.dtype, copy=True)
            master.grad = gradient if master.grad is None else master.grad + gradient

    @torch.no_grad()
    def step(self) -> None:
        """Step on the host, and send the parameters up, bucket by bucket."""
        for parameter in self.masters:
            if parameter.grad is not None:
                self._leave(parameter)
        for run, optimizer in zip(self.buckets, self.optimizers, strict=True):
            for parameter in run:
                self._arrive(parameter)
            stepped = [p for p in run if self.masters[p].grad is not None]
            with record_function("step on the host"):
                optimizer.step()
            for parameter in stepped:
                self.buffers[parameter].copy_(self.masters[parameter])
                self.bus.put(parameter.detach(), self.buffers[parameter])
        self.bus.join()
        self.zero_grad()

    def zero_grad(self) -> None:
        """Forget the gradients, those on their way too."""
        for parameter in list(self.arriving):
            self._arrive(parameter)
        for parameter, master in self.masters.items():
            parameter.grad = master.grad = None

    def state_dict(self) -> list[dict[str, Any]]:
        """Of the optimizer of each bucket."""
        return [optimizer.state_dict() for optimizer in self.optimizers]

    def load_state_dict(self, states: Sequence[dict[str, Any]]) -> None:
        for optimizer, state in zip(self.optimizers, states, strict=True):
            optimizer.load_state_dict(state)

"""What the ranks did: plain torch.distributed calls, recorded from outside.

    with Recorder("rank0.journal"):     # on each rank
        train()
    trace = read_trace({0: "rank0.journal", 1: "rank1.journal"})
    print(trace.traffic(), trace.timeline())
    trace.to_chrome("run.json")         # for ui.perfetto.dev

Learners write plain torch.distributed; nothing is wrapped. Ranks append plain events to a journal
while things happen, and every number is a pure function of these.

In the order in which to read, each line by itself:

    what is recorded    events, journal; calls for what an operator means, frames for whose line
    on a rank           recorder, dispatch_hooks, stopwatch, threads; work_handles for who waits
      memory            memory_tracker, operator_effects; largest_tensor
      races             buffers_in_flight, memory_overlap, operator_watch
      other mistakes    argument_checks, cut_gradients; silent_mistakes and event_wording say them
    all ranks           trace; traffic, collective_bytes, memory_curves, arrivals,
                        collective_calls; matching, wait_for_graph
      times             timeline, measured_timeline, hidden_communication, step_timing
      for Perfetto      chrome_trace
"""

from .arrivals import arrivals
from .events import Block, CommEvent, ComputeSpan, Frame, Label, RankWarning
from .largest_tensor import largest_tensor
from .matching import Divergence, GroupCalls, Matching, match
from .memory_curves import Memory, MemoryCurve
from .recorder import Recorder
from .timeline import Span, Timeline, Track
from .trace import Trace, read_trace
from .traffic import Traffic

__all__ = [
    "Block",
    "CommEvent",
    "ComputeSpan",
    "Divergence",
    "Frame",
    "GroupCalls",
    "Label",
    "Matching",
    "Memory",
    "MemoryCurve",
    "RankWarning",
    "Recorder",
    "Span",
    "Timeline",
    "Trace",
    "Track",
    "Traffic",
    "arrivals",
    "largest_tensor",
    "match",
    "read_trace",
]

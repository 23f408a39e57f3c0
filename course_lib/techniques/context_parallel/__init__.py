"""Context parallelism: the tokens of one sequence are on several ranks.

To read in this order:

    split                   which tokens a rank holds: plain, zigzag, striped
    packed_documents        several in one sequence, and padding
    masks                   which keys a query sees, and which blocks are empty
    merge                   one softmax from two
    attention_kernels       attention of some queries to some keys, on one rank
    attention               how the three attentions are called
    local_attention         attention to the keys of one rank
    ring_exchange           every rank's block in turn, by the ring
    ring_attention          keys and values travel
    ring_backward           and their gradients behind them
    all_gather_attention    all keys and values at once, as Llama 3 does
    ulysses                 heads for tokens, by all-to-all
    attention_traffic       what each of the three sends
    attention_memory        what each of the three holds
    rotary                  positions as angles
    loss                    a mean over tokens that are elsewhere
    axis, gpt               all of it, as one model

Needs of its neighbours: collectives.

Sequence parallelism has the same aim and another way: it cuts tokens among the ranks that share
every layer, and has all of them back before each layer (tensor_parallel/sequence.py, Korthikanti et
al., arXiv 2205.05198). Here attention itself is cut, so a sequence may be as long as n ranks hold.

Every attention takes the process group of the ranks that share a sequence (`group`, None for all
ranks), so the same code is the context axis of a larger mesh.
"""

from .all_gather_attention import all_gather_attention
from .attention_kernels import attend
from .attention_memory import all_gather_memory, ring_memory, ulysses_memory
from .attention_traffic import all_gather_bytes, ring_bytes, ulysses_bytes
from .axis import ContextAxis
from .gpt import ContextAttention, ContextParallelGPT
from .loss import average_gradients, context_parallel_loss, token_mean
from .masks import Seen, work
from .merge import merge
from .packed_documents import packed_documents, padding_documents, positions_in_documents
from .ring_attention import ring_attention
from .rotary import rotary
from .split import TokenSplit, plain_split, split_by_positions, striped_split, zigzag_split
from .ulysses import ulysses_attention

__all__ = [
    "ContextAttention",
    "ContextAxis",
    "ContextParallelGPT",
    "Seen",
    "TokenSplit",
    "all_gather_attention",
    "all_gather_bytes",
    "all_gather_memory",
    "attend",
    "average_gradients",
    "context_parallel_loss",
    "merge",
    "packed_documents",
    "padding_documents",
    "plain_split",
    "positions_in_documents",
    "ring_attention",
    "ring_bytes",
    "ring_memory",
    "rotary",
    "split_by_positions",
    "striped_split",
    "token_mean",
    "ulysses_attention",
    "ulysses_bytes",
    "ulysses_memory",
    "work",
    "zigzag_split",
]

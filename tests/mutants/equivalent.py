"""Changes that leave an answer as right as it was: mutants that may pass, each with the reason.

By exercise, a change (as `make mutants` prints it) -> why it is the same answer.
"""

_RECEIVED = "a tensor that has just been received has no graph to be cut from"
_INSIDE = "inside a Function nothing is recorded that could be cut"
_USED_UP = "backward has used up the graph that is left on it"
_VALUES = "what is sent or received are values: it may require a gradient"
_ONE_SENDER = "only one rank sends to this one at this time, or the order makes no difference"
_NEGATIVE = "a negative index counts from the end, as a rank of a ring does"
_FIRST = "the first one opens a pack, however much room there is"
_PARAMETER = "nn.Parameter cuts what it is made of from its graph by itself"
_AS_GOOD = "another table, as short in every case and with no more in memory"
_NONE_DIVIDES = "a number above the number of layers does not divide it"
_SAME_ORDER = "the seconds are others, and plans stand in an order that is near enough, as is asked"
_OVERWRITTEN = "what is received overwrites the copy"
_CLOSED = "every member of a circle closes the walk that began at it"
_EMPTY_PIECE = "a piece of no elements is allowed"
_PRODUCT = "a product of two numbers"
_ONE_DTYPE = "all of a pack have one dtype"
_AS_LARGE = "all chunks are as large"
_OWN_ROW = "a row that nobody else knows is as good as a clone of it"
_ZERO = "a zero is one in every dtype"
_NEAR_ENOUGH = "the loss is near enough in the dtype of the model"
_FLOAT32 = "the digits of float32 are enough"
_ANY_SEED = "any seed will do that is another one in every epoch"
_FOUR_DIMENSIONS = "of four dimensions the last but one is number 2"
_NOT_ASKED = "this layer needs no gradient"
_TWO_DIMENSIONS = "of two dimensions the last is number 1"
_AS_MANY = "a row has as many B as F"
_TWO_AT_LEAST = "all microbatches are as large, and there are two at least"
_BY_1 = "scaled by 1 where the two are equal"
_EMPTY_SEGMENT = "a segment of no layers at the end hands on what it gets"
_TO_THE_BYTE = "nothing fills 60 % of a memory to the byte"
_NO_MEMORY = "nothing fills a memory to the byte"
_EVENLY = "what is divided here divides evenly"
_NO_DIVISOR = "no number divides a smaller one"
_STAGE_2 = (
    "stage 2 takes no longer than 0 and 1 and holds less, except on one device, where these two "
    "are the same"
)
_APART = "no position is on two ranks"
_IN_ONE_PIECE = "tokens and gradients are contiguous here, and a copy is made only of others"
_STABLE = "torch sorts stably on a CPU, asked or not"

SAME: dict[str, dict[str, str]] = {
    "all_gather_by_sends": {
        "piece = tensor.clone() if dist.get_rank() == root else torch.empty"
        "_like(tensor) -> piece = tensor.clone() if True else torch.empty_l"
        "ike(tensor)": _OVERWRITTEN,
    },
    "blame": {
        "if rank in path: -> if False:": _CLOSED,
    },
    "broadcast_by_sends": {
        "dist.recv(tensor, src=root) -> dist.recv(tensor)": _ONE_SENDER,
    },
    "ping_pong": {
        "dist.recv(ball, src=1) -> dist.recv(ball)": _ONE_SENDER,
        "dist.recv(ball, src=0) -> dist.recv(ball)": _ONE_SENDER,
    },
    "scatter_by_sends": {
        "dist.recv(output, src=root) -> dist.recv(output)": _ONE_SENDER,
    },
    "place_by_bytes": {
        "if start < stop: -> if start <= stop:": _EMPTY_PIECE,
    },
    "push_and_pull": {
        "dist.recv(values, src=0) -> dist.recv(values)": _ONE_SENDER,
        "return values -> return values.detach()": _RECEIVED,
        "dist.recv(pushed, src=worker) -> dist.recv(pushed)": _ONE_SENDER,
    },
    "train_synchronously": {
        "dist.send(p.detach(), dst=worker) -> dist.send(p, dst=worker)": _VALUES,
        "dist.recv(p.detach(), src=0) -> dist.recv(p.detach())": _ONE_SENDER,
        "dist.recv(p.detach(), src=0) -> dist.recv(p, src=0)": _VALUES,
    },
    "average_gradients_by_hooks": {
        "dist.broadcast(tensor.detach(), src=0) -> dist.broadcast(tensor, src=0)": _VALUES,
    },
    "fit_alpha_beta": {
        "ab = sum((x * y for x, y in zip(a, b, strict=True))) -> ab = sum(("
        "x * y for x, y in zip(b, a, strict=True)))": _PRODUCT,
    },
    "fused_all_reduce": {
        "room = 0 -> (left out)": _FIRST,
        "room = 0 -> room = 1": _FIRST,
        "room = 0 -> room = -1": _FIRST,
        "if not packs or tensor.nbytes > room or tensor.dtype != packs[-1]["
        "0].dtype: -> if not packs or tensor.nbytes > room or tensor.dtype "
        "!= packs[-1][-1].dtype:": _ONE_DTYPE,
    },
    "gather_broadcast_all_reduce": {
        "dist.recv(arriving, src=rank) -> dist.recv(arriving)": _ONE_SENDER,
        "dist.recv(tensor, src=0) -> dist.recv(tensor)": _ONE_SENDER,
        "return tensor -> return tensor.detach()": _RECEIVED,
    },
    "halving_doubling_all_reduce": {
        "return tensor -> return tensor.detach()": _RECEIVED,
    },
    "ring_all_gather": {
        "outgoing = chunks[(rank - step) % n] -> outgoing = chunks[rank - step]": _NEGATIVE,
        "dist.recv(chunks[(rank - 1 - step) % n], group=group, group_src=(r"
        "ank - 1) % n) -> dist.recv(chunks[(rank - 1 - step) % n], group=gr"
        "oup)": _ONE_SENDER,
        "dist.recv(chunks[(rank - 1 - step) % n], group=group, group_src=(r"
        "ank - 1) % n) -> dist.recv(chunks[rank - 1 - step], group=group, g"
        "roup_src=(rank - 1) % n)": _NEGATIVE,
    },
    "ring_all_reduce": {
        "return tensor -> return tensor.detach()": _RECEIVED,
    },
    "ring_reduce_scatter": {
        "arriving = torch.empty_like(chunks[0]) -> arriving = torch.empty_l"
        "ike(chunks[-1])": _AS_LARGE,
        "outgoing = chunks[(rank - 1 - step) % n] -> outgoing = chunks[rank - 1 - step]": _NEGATIVE,
        "dist.recv(arriving, group=group, group_src=(rank - 1) % n) -> dist"
        ".recv(arriving, group=group)": _ONE_SENDER,
        "chunks[(rank - 2 - step) % n] += arriving -> chunks[rank - 2 - ste"
        "p] += arriving": _NEGATIVE,
        "return chunks[rank].clone() -> return chunks[rank]": _OWN_ROW,
    },
    "big_batch_gradient": {
        "value = torch.zeros((), dtype=inputs.dtype if inputs.is_floating_p"
        "oint() else None) -> value = torch.zeros(())": _ZERO,
        "value = torch.zeros((), dtype=inputs.dtype if inputs.is_floating_p"
        "oint() else None) -> value = torch.zeros((), dtype=inputs.dtype if"
        " True else None)": _ZERO,
        "value = torch.zeros((), dtype=inputs.dtype if inputs.is_floating_p"
        "oint() else None) -> value = torch.zeros((), dtype=inputs.dtype if"
        " False else None)": _ZERO,
        "value = value.detach().double() -> (left out)": _NEAR_ENOUGH,
        "value = value.detach().double() -> value = value.double()": _NEAR_ENOUGH,
    },
    "average_in_buckets": {
        "buckets, room = ([], 0) -> buckets, room = ([], 1)": _FIRST,
        "buckets, room = ([], 0) -> buckets, room = ([], -1)": _FIRST,
    },
    "buckets_by_ready_time": {
        "times = torch.tensor([float('inf') if t is None else t for t in re"
        "ady], dtype=torch.float64) -> times = torch.tensor([float('inf') i"
        "f t is None else t for t in ready])": _FLOAT32,
        "buckets, room = ([], 0) -> buckets, room = ([], 1)": _FIRST,
        "buckets, room = ([], 0) -> buckets, room = ([], -1)": _FIRST,
    },
    "shard_indices": {
        "generator = torch.Generator().manual_seed(seed + epoch) -> generat"
        "or = torch.Generator().manual_seed(seed - epoch)": _ANY_SEED,
    },
    "start_equal": {
        "dist.broadcast(tensor.detach(), src=0) -> dist.broadcast(tensor, src=0)": _VALUES,
    },
    "megatron_f": {
        "return total -> return total.detach()": _INSIDE,
    },
    "megatron_g": {
        "return total -> return total.detach()": _INSIDE,
        "return gradient -> return gradient.detach()": _INSIDE,
    },
    "parallel_attention": {
        "return megatron_g(mixed.transpose(1, 2).flatten(-2) @ out.T) -> re"
        "turn megatron_g(mixed.transpose(1, 2).flatten(2) @ out.T)": _FOUR_DIMENSIONS,
    },
    "row_linear": {
        "y = (x_part @ own.T).detach() -> y = x_part @ own.T": _NOT_ASKED,
    },
    "sequence_parallel_mlp": {
        "return whole -> return whole.detach()": _INSIDE,
        "return part -> return part.detach()": _INSIDE,
        "dist.all_gather(list(whole.chunk(t)), part.contiguous()) -> "
        "dist.all_gather(list(whole.chunk(t)), part)": _IN_ONE_PIECE,
        "dist.reduce_scatter(part, list(whole.contiguous().chunk(t))) -> "
        "dist.reduce_scatter(part, list(whole.chunk(t)))": _IN_ONE_PIECE,
        "normed = F.layer_norm(x, x.shape[-1:], megatron_f(gain)) -> normed"
        " = F.layer_norm(x, x.shape[1:], megatron_f(gain))": _TWO_DIMENSIONS,
    },
    "interleaved_schedule": {
        "warm_up = min(2 * (p - r - 1) + (v - 1) * p, m * v) -> warm_up = m"
        "in(1 * (p - r - 1) + (v - 1) * p, m * v)": _AS_GOOD,
    },
    "run_schedule": {
        "m = sum((op.kind == 'F' for op in row)) -> m = sum((op.kind != 'F'"
        " for op in row))": _AS_MANY,
        "tensor = torch.empty_like(xs[0]) -> tensor = torch.empty_like(xs[1])": _TWO_AT_LEAST,
        "tensor = torch.empty_like(xs[0]) -> tensor = torch.empty_like(xs[-1])": _TWO_AT_LEAST,
        "total += output.detach() -> total += output": _USED_UP,
        "send(output.detach(), rank + 1) -> send(output, rank + 1)": _VALUES,
        "return tensor -> return tensor.detach()": _RECEIVED,
    },
    "two_stage_step": {
        "dist.send(output.detach(), dst=1) -> dist.send(output, dst=1)": _VALUES,
        "dist.recv(crossing, src=1) -> dist.recv(crossing)": _ONE_SENDER,
        "dist.recv(crossing, src=0) -> dist.recv(crossing)": _ONE_SENDER,
        "return value.detach() -> return value": _USED_UP,
    },
    "zero_bubble_schedule": {
        "if i + 1 - weights > s: -> if i + 1 + weights > s:": _AS_GOOD,
    },
    "clip_across_shards": {
        "square = torch.zeros((), dtype=torch.float64) -> square = torch.zeros(())": _FLOAT32,
        "if norm > max_norm: -> if norm >= max_norm:": _BY_1,
    },
    "shard_layer": {
        "return dist.all_gather(list(full.chunk(n)), shard.detach(), async_"
        "op=True) -> return dist.all_gather(list(full.chunk(n)), shard, asy"
        "nc_op=True)": _VALUES,
    },
    "zero1": {
        "dist.all_gather(list(row.chunk(n)), shard.detach()) -> dist.all_ga"
        "ther(list(row.chunk(n)), shard)": _VALUES,
    },
    "zero2": {
        "dist.all_gather(list(row.chunk(n)), shard.detach()) -> dist.all_ga"
        "ther(list(row.chunk(n)), shard)": _VALUES,
    },
    "zero3_step": {
        "return value.detach() -> return value": _USED_UP,
    },
    "checkpointed": {
        "for start in range(0, len(layers), k): -> for start in range(0, le"
        "n(layers) + 1, k):": _EMPTY_SEGMENT,
    },
    "master_weights": {
        "copies = [nn.Parameter(p.detach().float()) for p in own] -> copies"
        " = [nn.Parameter(p.float()) for p in own]": _PARAMETER,
    },
    "offload": {
        "copies = [nn.Parameter(to_host(p.detach()).float()) for p in own] "
        "-> copies = [nn.Parameter(to_host(p).float()) for p in own]": _PARAMETER,
    },
    "choose_mesh": {
        "for tensor in range(1, cluster['per_node'] + 1): -> for tensor in "
        "range(1, cluster['per_node'] + 1 + 1):": _NO_DIVISOR,
        "for tensor in range(1, cluster['per_node'] + 1): -> for tensor in "
        "range(1, cluster['per_node'] + 2):": _NO_DIVISOR,
        "for pipeline in range(1, model['layers'] + 1): -> for pipeline in "
        "range(1, model['layers'] + 1 + 1):": _NONE_DIVIDES,
        "for pipeline in range(1, model['layers'] + 1): -> for pipeline in "
        "range(1, model['layers'] + 2):": _NONE_DIVIDES,
        "if need <= 0.6 * cluster['memory']: -> if need < 0.6 * cluster['memory']:": _TO_THE_BYTE,
    },
    "choose_savings": {
        "for zero in (0, 1, 2, 3): -> for zero in (0, 2, 2, 3):": _STAGE_2,
        "for zero in (0, 1, 2, 3): -> for zero in (0, 0, 2, 3):": _STAGE_2,
        "for zero in (0, 1, 2, 3): -> for zero in (1, 1, 2, 3):": _STAGE_2,
        "each += 2 / (n if zero >= 2 else 1) + 12 / (n if zero >= 1 else 1) -> each += 2 "
        "/ (n if zero >= 2 else 1) + 12 / (n if True else 1)": _STAGE_2,
        "each += 2 / (n if zero >= 2 else 1) + 12 / (n if zero >= 1 else 1) -> each += 2 "
        "/ (n if zero >= 2 else 1) + 12 / (n if zero > 1 else 1)": _STAGE_2,
        "each += 2 / (n if zero >= 2 else 1) + 12 / (n if zero >= 1 else 1) -> each += 2 "
        "/ (n if zero >= 2 else 1) + 12 / (n if zero >= 2 else 1)": _STAGE_2,
        "each += 2 / (n if zero >= 2 else 1) + 12 / (n if zero >= 1 else 1) -> each += 2 "
        "/ (n if zero >= 2 else 1) + 12 / (n if zero >= 0 else 1)": _STAGE_2,
        "whole = {0: 0, 1: 0, 2: 4, 3: 8}[zero] -> whole = "
        "{0: 0, 1: 1, 2: 4, 3: 8}[zero]": _STAGE_2,
        "whole = {0: 0, 1: 0, 2: 4, 3: 8}[zero] -> whole = "
        "{0: 1, 1: 0, 2: 4, 3: 8}[zero]": _STAGE_2,
        "if states + activations <= job['memory']: -> if states + activations "
        "< job['memory']:": _NO_MEMORY,
    },
    "choose_schedule": {
        "return [n for n in range(1, number + 1) if number % n == 0] -> return [n for n in "
        "range(1, number + 1 + 1) if number % n == 0]": _NO_DIVISOR,
        "return [n for n in range(1, number + 1) if number % n == 0] -> return [n for n in "
        "range(1, number + 2) if number % n == 0]": _NO_DIVISOR,
        "sequences = job['batch'] * p // job['machines'] // m -> sequences = job['batch'] * p "
        "// job['machines'] / m": _EVENLY,
        "sequences = job['batch'] * p // job['machines'] // m -> sequences = job['batch'] * p "
        "/ job['machines'] // m": _EVENLY,
        "if job['states'] * layers + kept <= job['memory']: -> if job['states'] * layers + kept "
        "< job['memory']:": _NO_MEMORY,
    },
    "price_plan": {
        "kept = tokens * hidden * (2 if again else 34 / t) -> kept = tokens"
        " * hidden * (2 if again else 35 / t)": _SAME_ORDER,
        "kept = tokens * hidden * (2 if again else 34 / t) -> kept = tokens"
        " * hidden * (2 if again else 33 / t)": _SAME_ORDER,
        "kept = tokens * hidden * (2 if again else 34 / t) -> kept = tokens"
        " * hidden * (3 if again else 34 / t)": _SAME_ORDER,
        "kept = tokens * hidden * (2 if again else 34 / t) -> kept = tokens"
        " * hidden * (1 if again else 34 / t)": _SAME_ORDER,
        "compute = (8 if again else 6) * own * tokens / cluster['flops'] ->"
        " compute = (8 if again else 7) * own * tokens / cluster['flops']": _SAME_ORDER,
        "compute = (8 if again else 6) * own * tokens / cluster['flops'] ->"
        " compute = (7 if again else 6) * own * tokens / cluster['flops']": _SAME_ORDER,
        "all_reduce = 2 * (t - 1) / t * 2 * tokens * hidden / cluster['insi"
        "de'] -> all_reduce = 2 * (t - 1) / t * 1 * tokens * hidden / clust"
        "er['inside']": _SAME_ORDER,
        "all_reduce = 2 * (t - 1) / t * 2 * tokens * hidden / cluster['insi"
        "de'] -> all_reduce = 2 * (t + 1) / t * 2 * tokens * hidden / clust"
        "er['inside']": _SAME_ORDER,
        "all_reduce = 2 * (t - 1) / t * 2 * tokens * hidden / cluster['insi"
        "de'] -> all_reduce = 2 * (t - 2) / t * 2 * tokens * hidden / clust"
        "er['inside']": _SAME_ORDER,
        "all_reduce = 2 * (t - 1) / t * 2 * tokens * hidden / cluster['insi"
        "de'] -> all_reduce = 2 * (t - 0) / t * 2 * tokens * hidden / clust"
        "er['inside']": _SAME_ORDER,
        "all_reduce = 2 * (t - 1) / t * 2 * tokens * hidden / cluster['insi"
        "de'] -> all_reduce = 1 * (t - 1) / t * 2 * tokens * hidden / clust"
        "er['inside']": _SAME_ORDER,
        "talk = (6 if again else 4) * layers * all_reduce -> talk = (6 if T"
        "rue else 4) * layers * all_reduce": _SAME_ORDER,
        "talk = (6 if again else 4) * layers * all_reduce -> talk = (6 if F"
        "alse else 4) * layers * all_reduce": _SAME_ORDER,
        "talk = (6 if again else 4) * layers * all_reduce -> talk = (6 if a"
        "gain else 5) * layers * all_reduce": _SAME_ORDER,
        "talk = (6 if again else 4) * layers * all_reduce -> talk = (6 if a"
        "gain else 3) * layers * all_reduce": _SAME_ORDER,
        "talk = (6 if again else 4) * layers * all_reduce -> talk = (5 if a"
        "gain else 4) * layers * all_reduce": _SAME_ORDER,
        "if d * t > cluster['per_node']: -> if True:": _SAME_ORDER,
        "if d * t > cluster['per_node']: -> if d * t >= cluster['per_node']:": _SAME_ORDER,
        "adapters = min(cluster['rings'], max(1, cluster['per_node'] // t))"
        " -> adapters = min(cluster['rings'], max(1, cluster['per_node'] / "
        "t))": _SAME_ORDER,
        "adapters = min(cluster['rings'], max(1, cluster['per_node'] // t))"
        " -> adapters = min(cluster['rings'], max(0, cluster['per_node'] //"
        " t))": _SAME_ORDER,
        "ring = (d - 1) / d * 2 * own / bandwidth -> ring = (d - 1) / d * 3"
        " * own / bandwidth": _SAME_ORDER,
        "ring = (d - 1) / d * 2 * own / bandwidth -> ring = (d + 1) / d * 2"
        " * own / bandwidth": _SAME_ORDER,
        "ring = (d - 1) / d * 2 * own / bandwidth -> ring = (d - 0) / d * 2"
        " * own / bandwidth": _SAME_ORDER,
        "data = 2 * ring -> data = 1 * ring": _SAME_ORDER,
        "data = m * (ring + max(0, 2 * ring - compute)) -> data = m * (ring"
        " + max(0, 3 * ring - compute))": _SAME_ORDER,
        "data = m * (ring + max(0, 2 * ring - compute)) -> data = m * (ring"
        " + max(0, 1 * ring - compute))": _SAME_ORDER,
    },
    "causal_work": {
        "return [[int((positions[r][:, None] >= positions[(r - s) % n]).sum()) for s in range(n)] "
        "for r in range(n)] -> return [[int((positions[r][:, None] >= positions[r - s]).sum()) "
        "for s in range(n)] for r in range(n)]": _NEGATIVE,
    },
    "dispatch_tokens": {
        f"{sort}.argsort(stable=True) -> {sort}.argsort({without})": _STABLE
        for sort in ("order = experts.flatten()", "again = whose")
        for without in ("", "stable=False")
    },
    "exchange_with_gradient": {"return output -> return output.detach()": _RECEIVED},
    "packed_ring_attention": {
        "visible = visible_of((rank - step) % n) -> visible = visible_of(rank - step)": _NEGATIVE,
        "return out -> return out.detach()": "what comes in has no graph, and none is asked for",
    },
    "pass_on": {
        "dist.recv(tensor, src=(rank - 1) % n) -> dist.recv(tensor)": _ONE_SENDER,
    },
    "ring_attention": {
        "visible = mine[:, None] >= positions[(rank - step) % n] -> "
        "visible = mine[:, None] >= positions[rank - step]": _NEGATIVE,
        "visible = mine[:, None] >= positions[(rank - step) % n] -> "
        "visible = mine[:, None] > positions[(rank - step) % n]": _APART,
    },
    "ring_attention_backward": {
        "visible = positions[rank][:, None] >= positions[(rank - step) % n] -> "
        "visible = positions[rank][:, None] >= positions[rank - step]": _NEGATIVE,
    },
}

"""A dispatch mode that changes nothing: somebody else's, inside the recorder's."""

from torch.utils._python_dispatch import TorchDispatchMode


class Nested(TorchDispatchMode):
    @classmethod
    def _should_skip_dynamo(cls):
        return False  # not worth loading torch's compiler

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))

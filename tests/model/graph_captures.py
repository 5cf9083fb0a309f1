"""What stands for CUDA graphs where there is no GPU: a recording that is replayed."""

import torch
from torch.fx.experimental.proxy_tensor import make_fx


class TracedCapture:
    """Records the operations of a step on tensors that have a shape and no numbers, and replays them on the buffers.

    So it is as strict as a graph: shapes, numbers of Python and addresses other than the buffers' are those of the
    recording for ever, and whatever asks for a number of a tensor (`item`, `nonzero`, a mask as an index) fails.
    """

    def __init__(self):
        self.num_captures = 0
        self.num_replays = 0

    def __call__(self, step, buffers):
        step(*buffers)
        recorded = make_fx(step, tracing_mode="fake", _allow_non_fake_inputs=True)(*buffers)
        self.num_captures += 1

        def replay():
            self.num_replays += 1
            with torch.no_grad():
                recorded(*buffers)

        return replay

"""What all tests share."""

import torch

# Products of tiny models gain nothing from more threads, and lose much where another process wants a core.
torch.set_num_threads(1)

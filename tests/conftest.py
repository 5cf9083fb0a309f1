"""What all tests share."""

import pytest
import torch

# Products of tiny models gain nothing from more threads, and lose much where another process wants a core.
torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _same_random_numbers_in_every_run():
    torch.manual_seed(1)

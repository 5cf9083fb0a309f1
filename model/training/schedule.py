"""The learning rate over a run."""

from __future__ import annotations


def learning_rate_factor(
    step: int, *, total_steps: int, warmup_steps: int, decay_power: float, cooldown_fraction: float
) -> float:
    """The share of the peak learning rate that a step uses.

    A linear rise, then the gentle power-law fall of the paper (section 5.3, there with power 0.5), and in the
    last part a linear fall to zero on top of it (the cool-down of Zhai et al. 2022): most of a
    run's gain comes in that last part, and it can be started at any time.

    Args:
        step: 1 for the first optimizer step.
        total_steps: The last step; later ones get 0.
        warmup_steps: Length of the rise.
        decay_power: 0 keeps the peak.
        cooldown_fraction: Share of ``total_steps`` that the final fall takes.

    Returns:
        A factor in [0, 1].
    """
    factor: float = min(step / warmup_steps, (warmup_steps / step) ** decay_power)
    cooldown_steps = cooldown_fraction * total_steps
    if cooldown_steps > 0:
        factor *= min(1.0, (total_steps - step + 1) / cooldown_steps)
    return max(0.0, factor)

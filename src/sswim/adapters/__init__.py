"""sswim in other people's tools: weights for their networks, and models for their benchmarks."""

from sswim.adapters.others import SampledInto, sample_into

__all__ = ["SampledInto", "sample_into"]

"""sswim at work in other libraries: their networks, with weights from S-SWIM."""

from sswim.adapters.others import SampledInto, sample_into

__all__ = ["SampledInto", "sample_into"]

"""Series to try things on, and reading a user's own files. Everything comes as a DataFrame, time x channels."""

from sswim.datasets.files import read_series, write_series
from sswim.datasets.wind_farm import load_wind_farm

__all__ = ["load_wind_farm", "read_series", "write_series"]

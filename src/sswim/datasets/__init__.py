"""Data to try things on, and reading a user's own files. Series come as a DataFrame, time x channels."""

from sswim.datasets.files import read_series, write_series
from sswim.datasets.images import data_folder, load_images, read_idx
from sswim.datasets.wind_farm import load_wind_farm

__all__ = ["data_folder", "load_images", "load_wind_farm", "read_idx", "read_series", "write_series"]

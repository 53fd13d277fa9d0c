"""Data to try things on, and reading a user's own files. Series come as a DataFrame, time x channels; events as lists."""

from sswim.datasets.audio import load_fsdd
from sswim.datasets.departures import load_departures
from sswim.datasets.files import read_series, write_series
from sswim.datasets.images import data_folder, load_images, read_idx
from sswim.datasets.ltsf import LTSF, LtsfSet, load_ltsf, ltsf_set
from sswim.datasets.nmnist import load_nmnist
from sswim.datasets.series import SERIES, SeriesSet, fill_zeros, load_series, read_text, series_set
from sswim.datasets.shd import load_shd
from sswim.datasets.tonic import from_tonic
from sswim.datasets.traffic import read_hdf
from sswim.datasets.wind_farm import load_wind_farm

__all__ = [
    "LTSF",
    "LtsfSet",
    "SERIES",
    "SeriesSet",
    "data_folder",
    "fill_zeros",
    "from_tonic",
    "load_departures",
    "load_fsdd",
    "load_images",
    "load_ltsf",
    "load_nmnist",
    "load_series",
    "load_shd",
    "load_wind_farm",
    "ltsf_set",
    "read_hdf",
    "read_idx",
    "read_series",
    "read_text",
    "series_set",
    "write_series",
]

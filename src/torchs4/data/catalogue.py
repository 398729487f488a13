"""Which datasets there are, where they come from, whether they are there, and how to get them."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from typing import TYPE_CHECKING

from torchs4.data.archives import download, extract

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

# Where archives wait until they are unpacked.
_DOWNLOADS = "downloads"


@dataclass(frozen=True)
class RemoteFile:
    """A file on a dataset's official server.

    target: where it belongs, as a path in the data folder: the file itself, or for an archive the folder in
        which its contents appear.
    archive: whether it is to be unpacked.
    sha256, size: what is publicly known of it.
    """

    url: str
    target: str
    archive: bool
    sha256: str | None = None
    size: int | None = None

    @property
    def name(self) -> str:
        """The last part of the address."""
        return self.url.rpartition("/")[2]


@dataclass(frozen=True)
class Source:
    """A dataset of the catalogue.

    files: what to fetch; none for a dataset that the package generates, or that has to be fetched by hand.
    page: where people find a dataset that no program may or can fetch.
    markers: patterns of paths in the data folder; the dataset is there when each finds something.
    contents: patterns of the paths that take up the dataset's space.
    prepared: patterns of the arrays that loaders have made of its files.
    size_mb: to fetch, or when generated, on disk; in units of a million bytes.
    """

    name: str
    title: str
    licence: str
    files: tuple[RemoteFile, ...]
    markers: tuple[str, ...]
    contents: tuple[str, ...]
    size_mb: int
    note: str = ""
    prepared: tuple[str, ...] = ()
    page: str = ""

    @property
    def generated(self) -> bool:
        """Whether the package makes it instead of fetching it."""
        return not self.files and not self.page


@dataclass(frozen=True)
class Status:
    """A dataset, whether it is in the data folder, and the bytes it takes there."""

    source: Source
    present: bool
    size_on_disk: int


def _speech_commands(name: str, version: str, sha256: str, size: int) -> Source:
    folder = f"SpeechCommands/speech_commands_v{version}"
    # The archive has no folder of its own at its top.
    url = f"https://storage.googleapis.com/download.tensorflow.org/data/speech_commands_v{version}.tar.gz"
    return Source(
        name=name,
        title=f"Speech Commands v{version}: spoken words of one second",
        licence="CC BY 4.0",
        files=(RemoteFile(url, folder, archive=True, sha256=sha256, size=size),),
        markers=(
            f"{folder}/yes",
            f"{folder}/go",
            f"{folder}/validation_list.txt",
            f"{folder}/testing_list.txt",
        ),
        contents=(folder,),
        size_mb=round(size / 1e6),
        prepared=(f"speech-commands-{version}-*",),
    )


def _mnist_file(name: str, sha256: str, size: int) -> RemoteFile:
    url = f"https://ossci-datasets.s3.amazonaws.com/mnist/{name}"
    return RemoteFile(url, f"mnist/{name}", archive=False, sha256=sha256, size=size)


_MNIST_FILES = (
    _mnist_file(
        "train-images-idx3-ubyte.gz",
        "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
        9_912_422,
    ),
    _mnist_file(
        "train-labels-idx1-ubyte.gz",
        "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
        28_881,
    ),
    _mnist_file(
        "t10k-images-idx3-ubyte.gz",
        "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
        1_648_877,
    ),
    _mnist_file(
        "t10k-labels-idx1-ubyte.gz",
        "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
        4_542,
    ),
)


def _ett_file(name: str, sha256: str, size: int) -> RemoteFile:
    url = f"https://raw.githubusercontent.com/zhouhaoyi/ETDataset/main/ETT-small/{name}"
    return RemoteFile(url, f"ETT-small/{name}", archive=False, sha256=sha256, size=size)


_ETT_FILES = (
    _ett_file("ETTh1.csv", "f18de3ad269cef59bb07b5438d79bb3042d3be49bdeecf01c1cd6d29695ee066", 2_589_657),
    _ett_file("ETTh2.csv", "a3dc2c597b9218c7ce1cd55eb77b283fd459a1d09d753063f944967dd6b9218b", 2_417_960),
    _ett_file("ETTm1.csv", "6ce1759b1a18e3328421d5d75fadcb316c449fcd7cec32820c8dafda71986c9e", 10_360_719),
    _ett_file("ETTm2.csv", "db973ca252c6410a30d0469b13d696cf919648d0f3fd588c60f03fdbdbadd1fd", 9_677_236),
)

_INFORMER_PAGE = "https://github.com/zhouhaoyi/Informer2020#data"

SOURCES = (
    Source(
        name="mnist",
        title="MNIST: 70,000 handwritten digits",
        licence="usually cited as CC BY-SA 3.0",
        files=_MNIST_FILES,
        markers=tuple(file.target for file in _MNIST_FILES),
        contents=("mnist",),
        prepared=("mnist-*",),
        size_mb=12,
    ),
    Source(
        name="cifar10",
        title="CIFAR-10: 60,000 small photographs of ten kinds",
        licence="none stated (Krizhevsky 2009)",
        files=(
            RemoteFile(
                "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
                "",
                archive=True,
                sha256="c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
                size=170_052_171,
            ),
        ),
        markers=(
            *(f"cifar-10-batches-bin/data_batch_{number}.bin" for number in range(1, 6)),
            "cifar-10-batches-bin/test_batch.bin",
        ),
        contents=("cifar-10-batches-bin",),
        prepared=("cifar10-*",),
        size_mb=170,
    ),
    Source(
        name="imdb",
        title="IMDB: 50,000 film reviews",
        licence="none stated (Maas et al. 2011)",
        files=(
            RemoteFile(
                "https://ai.stanford.edu/~amaas/data/sentiment/aclImdb_v1.tar.gz",
                "",
                archive=True,
                sha256="c40f74a18d3b61f90feba1e17730e0d38e8b97c05fde7008942e91923d1658fe",
                size=84_125_825,
            ),
        ),
        markers=tuple(f"aclImdb/{part}/{side}" for part in ("train", "test") for side in ("pos", "neg")),
        contents=("aclImdb",),
        prepared=("imdb-*",),
        size_mb=84,
    ),
    _speech_commands(
        "speech-commands",
        "0.02",
        "af14739ee7dc311471de98f5f9d2c9191b18aedfe957f4a6ff791c709868ff58",
        2_428_923_189,
    ),
    _speech_commands(
        "speech-commands-v0.01",
        "0.01",
        "743935421bb51cccdb6bdd152e04c5c70274e935c82119ad7faeec31780d811d",
        1_489_096_277,
    ),
    Source(
        name="ett",
        title="ETT: two years of electricity transformers",
        licence="CC BY-ND 4.0",
        files=_ETT_FILES,
        markers=tuple(file.target for file in _ETT_FILES),
        contents=("ETT-small",),
        prepared=("ett-*",),
        size_mb=25,
    ),
    Source(
        name="weather",
        title="Weather: four years of hours at one place (WTH of the Informer benchmark)",
        licence="none stated (NOAA)",
        files=(),
        markers=("WTH.csv",),
        contents=("WTH.csv",),
        prepared=("weather-v*",),
        size_mb=3,
        page=_INFORMER_PAGE,
        note="Its publishers share WTH.csv through a drive that programs cannot read.",
    ),
    Source(
        name="electricity",
        title="ECL: electricity of 321 clients by the hour (of the Informer benchmark)",
        licence="CC BY 4.0 (UCI)",
        files=(),
        markers=("ECL*.csv",),
        contents=("ECL*.csv",),
        prepared=("electricity-*",),
        size_mb=96,
        page=_INFORMER_PAGE,
        note="Its publishers share ECL.csv through a drive that programs cannot read.",
    ),
    Source(
        name="wikitext-2",
        title="WikiText-2: articles of Wikipedia",
        licence="CC BY-SA 3.0",
        files=(
            RemoteFile(
                # The server of the dataset's author: that of the publication is gone.
                "https://wikitext.smerity.com/wikitext-2-v1.zip",
                "",
                archive=True,
                sha256="92675f1d63015c1c8b51f1656a52d5bdbc33aafa60cc47a218a66e7ee817488c",
            ),
        ),
        markers=tuple(f"wikitext-2/wiki.{part}.tokens" for part in ("train", "valid", "test")),
        contents=("wikitext-2",),
        prepared=("wikitext-2-*",),
        size_mb=4,
    ),
    Source(
        name="wikitext-103",
        title="WikiText-103: fifty times as many articles",
        licence="CC BY-SA 3.0",
        files=(
            RemoteFile(
                "https://wikitext.smerity.com/wikitext-103-v1.zip",
                "",
                archive=True,
                sha256="242ba0f20b329cfdf1ccc61e9e9e5b59becf189db7f7a81cd2a0e2fc31539590",
            ),
        ),
        markers=tuple(f"wikitext-103/wiki.{part}.tokens" for part in ("train", "valid", "test")),
        contents=("wikitext-103",),
        prepared=("wikitext-103-*",),
        size_mb=190,
        note="Unpacked and prepared it needs about 1 GB more.",
    ),
    Source(
        name="lra",
        title="Long Range Arena: the release with ListOps, Retrieval and Pathfinder",
        licence="none stated for the data (Tay et al. 2021)",
        files=(
            RemoteFile("https://storage.googleapis.com/long-range-arena/lra_release.gz", "", archive=True),
        ),
        markers=("lra_release",),
        contents=("lra_release",),
        prepared=("listops-official-*", "retrieval-*", "pathfinder*-official-*"),
        size_mb=8230,
        note="Its publishers give no checksum, so only damage that the archive itself reveals is noticed. "
        "Unpacked it needs about 19 GB more.",
    ),
    Source(
        name="listops",
        title="ListOps: values of long nested expressions",
        licence="generated by this package",
        files=(),
        markers=("prepared/listops-generated-*",),
        contents=("prepared/listops-*",),
        size_mb=104,
        note="Generated on first use.",
    ),
    Source(
        name="pathfinder",
        title="Pathfinder: are two dots on one dashed curve?",
        licence="generated by this package",
        files=(),
        markers=("prepared/pathfinder*-generated-*",),
        contents=("prepared/pathfinder*",),
        size_mb=205,
        note="Generated on first use. At 128 × 128 pixels (Path-X) it takes 16 times as much space.",
    ),
)


def find(name: str) -> Source:
    """The dataset of that name."""
    by_name = {source.name: source for source in SOURCES}
    if name in by_name:
        return by_name[name]
    close = get_close_matches(name.lower(), by_name, n=1, cutoff=0.5)
    suggestion = f" Did you mean {close[0]}?" if close else ""
    raise ValueError(f"There is no dataset {name!r}.{suggestion} There are: {', '.join(by_name)}.")


def status(folder: Path) -> list[Status]:
    """How each dataset of the catalogue stands in the data folder."""
    return [Status(source, is_present(source, folder), _size_on_disk(source, folder)) for source in SOURCES]


def is_present(source: Source, folder: Path) -> bool:
    """Whether the dataset's files are in the data folder; not whether they are undamaged."""
    return all(any(folder.glob(marker)) for marker in source.markers)


def get(
    name: str, folder: Path, progress: Callable[[str, int, int], None] | None = None, *, again: bool = False
) -> None:
    """Fetch a dataset to where its loader expects it; nothing happens when it is there already.

    `again` fetches and replaces it even so, because it is damaged, say, and removes what was prepared from
    the old files. `progress` gets what is being done,
    the bytes so far and in all (0 when nobody knows).
    """
    source = find(name)
    if source.generated:
        raise ValueError(f"{name} is generated on first use: there is nothing to get.")
    if source.page:
        raise ValueError(
            f"{name} has to be fetched by hand. {source.note} Follow {source.page} and put the file into "
            f"{folder}."
        )
    if is_present(source, folder) and not again:
        return
    for file in source.files:
        place = folder / _DOWNLOADS / file.name if file.archive else folder / file.target
        download(
            file.url,
            place,
            sha256=file.sha256,
            size=file.size,
            progress=progress and partial(progress, f"Fetching {file.name}"),
        )
        if file.archive:
            extract(place, folder / file.target, progress and partial(progress, f"Unpacking {file.name}"))
            place.unlink()
            _remove_if_empty(place.parent)
    if absent := [marker for marker in source.markers if not any(folder.glob(marker))]:
        raise ValueError(
            f"{name} was fetched, but {absent[0]} is not in it: its publishers must have changed it."
        )
    if again:
        for pattern in source.prepared:
            for arrays in (folder / "prepared").glob(pattern):
                shutil.rmtree(arrays)


def _remove_if_empty(folder: Path) -> None:
    if not any(folder.iterdir()):
        folder.rmdir()


def _size_on_disk(source: Source, folder: Path) -> int:
    return sum(_size(path) for pattern in source.contents for path in folder.glob(pattern))


def _size(path: Path) -> int:
    if not path.is_dir():
        return path.stat().st_size
    return sum(
        os.stat(os.path.join(inner, name)).st_size for inner, _, names in os.walk(path) for name in names
    )
